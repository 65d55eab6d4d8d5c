"""The command line: claude's flags and refusals, and what the demo CLI tells of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from clisup.backends.demo import DemoAdapter
from clisup.demo import VERSION
from clisup.demo.directives import DIRECTIVES, markdown_table
from tests.fakecli.directives import MORE

if TYPE_CHECKING:
    from tests.demo.conftest import Demo

ROOT = Path(__file__).parents[2]


def test_it_tells_its_own_version(demo: Demo) -> None:
    run = demo.run("", "--version", base=())
    assert (run.code, run.stdout) == (0, f"{VERSION} (clisup demo)\n".encode())


def test_help_teaches_every_directive(demo: Demo) -> None:
    run = demo.run("", "--help", base=())
    said = run.stdout.decode()
    assert [name for name in DIRECTIVES | MORE if f"  @{name}" not in said] == []


def test_the_docs_hold_the_table_of_the_code() -> None:
    assert markdown_table() in (ROOT / "docs" / "backends" / "demo.md").read_text()


def test_it_takes_the_flags_of_a_supervisor(demo: Demo) -> None:
    config = demo.cwd / "mcp.json"
    config.write_text('{"mcpServers": {"bridge": {"command": "true"}}}')
    (demo.cwd / "system.md").write_text("Be brief.")
    run = demo.run(
        "hello", "--setting-sources", "user", "--model", "m-1", "--append-system-prompt-file", "system.md",
        "--permission-mode", "plan", "--mcp-config", str(config), "--strict-mcp-config", f"--session-id={uuid.uuid4()}",
    )  # fmt: skip
    init = run.of("system", "init")[0]
    assert (run.code, init["model"], init["permissionMode"]) == (0, "m-1", "plan")
    assert [server["name"] for server in init["mcp_servers"]] == ["bridge"]


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--no-such-flag",), "error: unknown option '--no-such-flag'"),
        (("--model",), "argument missing"),
        (("--permission-mode", "odd"), "Allowed choices are"),
        (("--session-id", "odd"), "Must be a valid UUID"),
        (("--resume", "a", "--session-id", str(uuid.UUID(int=0))), "--fork-session"),
        (("--input-format", "xml"), "is invalid"),
        (("--mcp-config", "missing.json"), "Invalid MCP configuration"),
        (("--append-system-prompt-file", "missing.md"), "Append system prompt file not found"),
    ],
)
def test_a_wrong_argument_is_one_line_on_stderr_and_exit_code_1(demo: Demo, args: tuple[str, ...], said: str) -> None:
    run = demo.run("hello", *args)
    assert (run.code, run.stdout) == (1, b"")
    assert said in run.stderr
    assert run.stderr.count("\n") == 1


def test_stream_json_needs_verbose(demo: Demo) -> None:
    run = demo.run("hello", base=("-p", "--output-format", "stream-json"))
    assert (run.code, "requires --verbose" in run.stderr) == (1, True)


def test_an_empty_prompt_is_refused(demo: Demo) -> None:
    run = demo.run("")
    assert (run.code, "Input must be provided" in run.stderr) == (1, True)


def test_the_prompt_may_stand_in_argv_before_stdin(demo: Demo) -> None:
    assert demo.run("stdin", "argv").text == "You said: argv\nstdin"


@pytest.mark.skipif(os.geteuid() != 0, reason="claude refuses this to root alone")
def test_root_may_not_bypass_permissions_outside_a_sandbox(demo: Demo) -> None:
    run = demo.run("hello", "--permission-mode", "bypassPermissions")
    assert (run.code, "root/sudo" in run.stderr) == (1, True)
    demo.env["IS_SANDBOX"] = "1"
    assert demo.run("hello", "--permission-mode", "bypassPermissions").code == 0


def test_the_product_alone_plays_the_directives_of_its_docs_and_no_others(demo: Demo) -> None:
    def run(prompt: str, *flags: str) -> list[dict[str, Any]]:
        argv = [*DemoAdapter.default_command, "-p", "--output-format", "stream-json", "--verbose", *flags]
        done = subprocess.run(
            argv, input=prompt.encode(), capture_output=True, check=False, timeout=20, cwd=demo.cwd, env=demo.env
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    script = "@think hm\nLook:\n@parallel\n@bash echo hi\n@tool Read\n@end\n@ask Bash\n@env HOME\n@count"
    result = run(script, "--a-flag-of-tomorrow", "x")[-1]
    assert (result["is_error"], result["result"]) == (False, "HOME: present\nturn 1")
    assert [denial["tool_name"] for denial in result["permission_denials"]] == ["Bash"]
    for name in MORE.keys() - DIRECTIVES.keys():
        assert f"unknown directive @{name}" in run(f"@{name}")[-1]["result"]


def test_python_m_does_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "clisup.demo", "--version"], cwd=ROOT, capture_output=True, check=False, timeout=20
    )
    assert (done.returncode, done.stdout) == (0, f"{VERSION} (clisup demo)\n".encode())


def test_nothing_in_its_directory_can_take_its_place(demo: Demo) -> None:
    for name in ("json.py", "clisup.py", "select.py"):
        (demo.cwd / name).write_text("raise SystemExit('shadowed')")
    assert demo.run("hello").text == "You said: hello"


def test_it_imports_nothing_heavy(demo: Demo) -> None:
    script = f"""
import sys, runpy, os
sys.argv[1:] = ["--version"]
os._exit = lambda code: sys.exit(code)
try: runpy.run_path({str(ROOT / "clisup/demo/__main__.py")!r}, run_name="__main__")
except SystemExit: pass
print([m for m in ("trio", "pydantic", "argparse", "subprocess", "dataclasses", "uuid", "asyncio") if m in sys.modules])
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, check=True, timeout=20)
    assert done.stdout.splitlines()[-1] == b"[]"
