"""docs/how-to/add-a-backend.md, done: its packages beside clisup, the CLIs behind them, and the page's own commands and tests."""

from __future__ import annotations

import re
import sys
import sysconfig
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, blocks, commands, is_console
from tests.docs.scene import Scene

PAGE = ROOT / "docs" / "how-to" / "add-a-backend.md"
AGENT = ROOT / "tests" / "daemon" / "acp_agent.py"
CLI = Path(__file__).with_name("kestrel_cli.py")


def block(language: str, mark: str) -> str:
    return next(item.text for item in blocks(PAGE) if item.language == language and mark in item.text)


def install_kestrel(site: Path) -> None:
    """What `pip install .` makes of the page's package and project file."""
    package = site / "clisup_kestrel"
    (package / "scrub_lists").mkdir(parents=True)
    (package / "__init__.py").write_text(block("python", "class KestrelAdapter"))
    for kind in ("allow", "scrub", "deny"):
        text = block("text", "kestrel.scrub") if kind == "scrub" else "@nothing\n"
        (package / "scrub_lists" / f"kestrel.{kind}").write_text(text)
    project = tomllib.loads(block("toml", "entry-points"))["project"]
    lines = [f"{name} = {value}" for name, value in project["entry-points"]["clisup.backends"].items()]
    info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    falcon = "falcon = clisup_falcon:FalconAdapter"
    (info / "entry_points.txt").write_text("\n".join(["[clisup.backends]", *lines, falcon, ""]))
    (site / "clisup_falcon.py").write_text(block("python", "class FalconAdapter"))


@pytest.fixture
def scene() -> Iterator[Scene]:
    """The page's packages in an environment of their own, and the CLIs `kestrel` and `falcon-agent` on the PATH. (The daemon
    starts itself anew without PYTHONPATH, so the packages have to be installed.)"""
    with Scene() as scene:
        venv.create(scene.root / "venv", with_pip=False)
        site = next((scene.root / "venv").glob("lib/python*/site-packages"))
        (site / "beside.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        install_kestrel(site)
        programs = {
            "clisup": f'{scene.root}/venv/bin/python -m clisup "$@"',
            "kestrel": f'{sys.executable} {CLI} "$@"',
            "falcon-agent": f'{sys.executable} {AGENT} "$@"',
            "test-kestrel": f'{scene.root}/venv/bin/python -m pytest -p no:cacheprovider -q "$@"',
        }
        for name, command in programs.items():
            (scene.root / "bin" / name).write_text(f"#!/bin/sh\nexec {command}\n")
            (scene.root / "bin" / name).chmod(0o755)
        config = scene.home / ".config" / "clisup" / "config.toml"
        config.write_text(config.read_text() + "[backends.kestrel]\n[backends.falcon]\n")
        assert scene.run("unset PYTHONPATH; export KESTREL_TOKEN=secret") == 0
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
    assert [row.split()[:5], answer] == [shown[0].split()[:5], shown[1]]


def test_a_native_adapter_has_sessions_usage_errors_and_lists_of_its_own(scene: Scene) -> None:
    with scene.client() as client, client.open("kestrel", str(scene.work)) as session:
        first, second, failed = (session.prompt(words) for words in ("say hello", "and now?", "fail"))
        seen = session.prompt("env")
        types = {envelope.event.type for envelope in session.history()}
    assert (first.text, second.text) == ("hello", "again")
    assert (first.usage.input_tokens, first.usage.output_tokens) == (3, 5)
    assert failed.error is not None and failed.error["kind"] == "quota_exceeded"
    assert {"process_started", "session_init", "message", "turn_completed", "process_exited"} <= types
    assert "KESTREL_TOKEN" not in seen.text and "PATH" in seen.text


def test_a_recorded_turn_passes_the_pages_own_tests(scene: Scene) -> None:
    with scene.client() as client, client.open("kestrel", str(scene.work)) as session:
        session.prompt("say hello")
    assert scene.run(f"mkdir recordings; cd recordings && clisup record {session.id}; cd ..") == 0
    (recording,) = (scene.work / "recordings").glob("*.meta.json")
    recording.with_name(recording.name.replace(".meta.json", ".story")).write_text(block("", "session -> session_init"))
    (scene.work / "test_kestrel_page.py").write_text(block("python", "def test_a_recording_keeps_the_contract"))
    assert scene.run("test-kestrel test_kestrel_page.py") == 0, scene.said
    assert re.search(r"\b1 passed", scene.said)


def test_the_words_of_an_acp_agent_for_an_error_are_those_of_its_adapter(scene: Scene) -> None:
    assert scene.run("clisup run -b falcon 'error -32603 mice \"no more mice\"'") == 1
    assert "buy some" in scene.said
