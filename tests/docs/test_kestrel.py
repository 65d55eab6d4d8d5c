"""docs/how-to/add-a-backend.md, done: its package beside clisup, an agent behind it, and the page's own commands."""

from __future__ import annotations

import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator

import pytest

from tests.docs.blocks import ROOT, blocks, commands, is_console
from tests.docs.scene import Scene

PAGE = ROOT / "docs" / "how-to" / "add-a-backend.md"
AGENT = ROOT / "tests" / "daemon" / "acp_agent.py"


def block(language: str, mark: str) -> str:
    return next(item.text for item in blocks(PAGE) if item.language == language and mark in item.text)


@pytest.fixture
def scene() -> Iterator[Scene]:
    """The page's package beside clisup in an environment of its own, and `kestrel-agent` on the PATH: an ACP agent that plays the
    prompt's lines. (The daemon starts itself anew without PYTHONPATH, so the package has to be installed.)"""
    with Scene() as scene:
        venv.create(scene.root / "venv", with_pip=False)
        site = next((scene.root / "venv").glob("lib/python*/site-packages"))
        (site / "beside.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        clisup = scene.root / "bin" / "clisup"
        clisup.write_text(f'#!/bin/sh\nexec {scene.root}/venv/bin/python -m clisup "$@"\n')
        project = tomllib.loads(block("toml", "entry-points"))["project"]
        info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        (site / "clisup_kestrel.py").write_text(block("python", "KestrelAdapter"))
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        lines = [f"{name} = {value}" for name, value in project["entry-points"]["clisup.backends"].items()]
        (info / "entry_points.txt").write_text("\n".join(["[clisup.backends]", *lines, ""]))
        agent = scene.root / "bin" / "kestrel-agent"
        agent.write_text(f'#!/bin/sh\nexec {sys.executable} {AGENT} "$@"\n')
        agent.chmod(0o755)
        config = scene.home / ".config" / "clisup" / "config.toml"
        config.write_text(config.read_text() + "[backends.kestrel]\n")
        assert scene.run("unset PYTHONPATH") == 0
        scene.start()
        yield scene


def test_the_pages_commands_do_what_the_page_shows(scene: Scene) -> None:
    console = next(item for item in blocks(PAGE) if is_console(item) and "kestrel" in item.text)
    said: list[str] = []
    for command in commands(console):
        assert scene.run(command.text) == 0, scene.said
        said += scene.said.splitlines()
    shown = [line for line in console.text.splitlines() if line.startswith(("kestrel ", "hello"))]
    row, answer = (next(line for line in said if line.startswith(word)) for word in ("kestrel ", "hello"))
    assert [row.split()[0:2], answer] == [shown[0].split()[0:2], shown[1]]


def test_its_words_for_an_error_are_those_of_the_page(scene: Scene) -> None:
    assert scene.run("clisup run -b kestrel 'error -32603 seeds \"no more seeds\"'") == 1
    assert "buy some" in scene.said


def test_a_turn_of_it_is_a_turn_like_any_other(scene: Scene) -> None:
    with scene.client() as client, client.open("kestrel", str(scene.work)) as session:
        result = session.prompt("say one\nremember")
        types = {envelope.event.type for envelope in session.history()}
    assert result.outcome == "completed"
    assert {"process_started", "session_init", "message", "turn_completed", "process_exited"} <= types
