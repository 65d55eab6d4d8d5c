"""`clisup web --open` and the table `[web]`: from a command to the page of a running turn."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import PATIENCE_S, until
from test_chromium_real import DESKTOP, chromium
from web_process import Pages

__all__ = ["chromium"]


def environment(pages: Pages, **more: str) -> dict[str, str]:
    return {**pages.daemon.env, "CLISUP_SOCKET": pages.daemon.socket,
            "CLISUP_STATE_DIR": str(pages.daemon.root / "client-state"), **more}  # fmt: skip


def written(folder: Path, text: str) -> str:
    path = folder / "web.toml"
    path.write_text(text)
    return str(path)


def browser_that_stays(folder: Path) -> tuple[str, Path]:
    """A `$BROWSER` that writes the address down and runs while the file is there, and the file with the address."""
    script, seen = folder / "browser", folder / "address"
    script.write_text(
        f'#!/bin/sh\necho "$1" > {seen}.new && mv {seen}.new {seen}\nwhile [ -e {seen} ]; do sleep 0.1; done\n'
    )
    script.chmod(0o755)
    return f"{script} %s", seen


@pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")
def test_a_newcomers_browser_shows_the_running_turn(pages: Callable[..., Pages], chromium: Any, tmp_path: Path) -> None:
    made = pages()
    made.end()
    new = made.daemon.call("session/new", backend="demo", cwd=str(made.daemon.cwd), title="Fix the build")["session_id"]
    made.daemon.call("session/prompt", session_id=new, prompt="I build it first.\n@stall")
    command, seen = browser_that_stays(tmp_path)
    made.start_with(environment(made, BROWSER=command), "--open")
    page = chromium.new_context(viewport=DESKTOP).new_page()
    page.goto(until(lambda: seen.exists() and seen.read_text().strip(), "no browser is opened"))
    page.click("button")
    card = page.wait_for_selector(".running .card")
    seen.unlink()
    assert "Fix the build" in card.inner_text() and "running" in card.inner_text()


def test_the_table_of_the_configuration_has_the_options_and_the_command_line_goes_first(
    pages: Callable[..., Pages], tmp_path: Path
) -> None:
    made = pages()
    made.end()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        other = taken.getsockname()[1]

    def clisup(text: str, *words: str) -> subprocess.CompletedProcess[str]:
        env = environment(made, CLISUP_CONFIG=written(tmp_path, text))
        argv = [sys.executable, "-m", "clisup", "web", *words]
        return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=PATIENCE_S, check=False)

    table = f'[web]\nport = {other}\nurl = "https://box.example"\n'
    assert "https://box.example/login?code=" in clisup(table, "tokens", "add", "phone").stdout
    assert "https://other.example/login" in clisup(table, "tokens", "add", "x", "--url", "https://other.example").stdout
    assert f"http://127.0.0.1:{other}/login" in clisup(f"[web]\nport = {other}\n", "tokens", "add", "y").stdout
    refused = clisup('[web]\nbind = "0.0.0.0"\n', "--no-start")
    assert (refused.returncode, "without TLS" in refused.stderr) == (2, True)
    wrong = clisup("[web]\nprot = 1\n", "--no-start")
    assert (wrong.returncode, "web.prot" in wrong.stderr or "prot" in wrong.stderr) == (78, True)
    made.start_with(
        environment(made, CLISUP_CONFIG=written(tmp_path, '[web]\nport = 1\nurl = "https://box.example"\n'))
    )
    assert made.browser().get("/", Host="box.example")[0] == 200  # the port is that of the command line
