"""What is special about a line of the pages: those that no test can run, those that end otherwise than with 0, those that never end.

Every other line is run as it stands. Each pattern is searched for in the line; a pattern that no line has is a failure, so
these tables cannot outlive the pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.docs.scene import Scene

NOT_RUN: dict[str, str] = {
    # pattern -> why. What `clisup` itself is asked for in such a line is parsed all the same.
    r"^git clone ": "the test has the clone already; CI begins with it",
    r"\bmake [a-z0-9]+": "a make target: CI runs demo, test and e2e; the others take minutes and have tests of their own",
    r"tests\.(zoo|chaos|crowd|fuzz|soak|bench)\.run": "a lane of minutes, with tests of its own in tests/",
    r"tests/e2e|tests\.e2e|tests/backends/test_": "recording a real CLI takes npm and the network; `make e2e` does it",
    r"tests\.backends\.known_fields": "writes into the checkout",
    r"^git diff tests": "looks at the checkout that the line before wrote to",
    r"pipx? install|-m venv": "installing takes the network; `make packages` does it",
    r"^export PATH=": "the scene has a clisup of its own first on its PATH",
    r"^(sudo |systemctl |loginctl |journalctl )|^clisup (un)?install (?!.*--dry-run)": "asks systemd; tests/systemd boots one",
    r"^nc -U ": "interactive; what is typed into it is checked against the method table",
    r"<(session|byte|instance)>": "what belongs there is on one's screen; tests/daemon/test_storage.py does it",
    r"^clisup (top|attach)\b": "needs a terminal; tests/daemon/test_attach.py gives them one",
    r"^clisup setup$": "asks at a terminal; tests/cli/test_setup_command.py answers",
    r"^clisup resume$": "needs a terminal; tests/daemon/test_resume_command.py gives it one",
    r"-b kestrel": "tests/docs/test_kestrel.py installs the page's package and an agent, and runs this line",
    r"\b(systemctl|loginctl|journalctl)\b": "needs a running systemd: tests/systemd has one, and does what the page says",
    r"\bclisup (un)?install --(user|system)(?!.*--dry-run)": "tests/systemd/test_install.py installs under a real systemd",
    r"\banthropic-api\b": "asks a provider; tests/daemon/test_api_backends.py does the same in front of loopback fakes",
    r"^clisup (fleet (init|prepare|member|join|doctor)|job )": "needs an engine; tests/fleet does the same",
    r"^clisup batch .*--fleet|\bdev1\b": "needs an engine; tests/fleet does the same",
    r"^clisup web (--open|--url)": "serves until it is stopped; tests/web does the same, in a real browser too",
    r"^clisup gateway$": "serves until it is stopped; tests/doors/gateway does the same, for the official SDKs",
    r"^clisup mcp install \w+ --write": "runs the CLI's own command; tests/e2e/test_mcp_agents.py does it with each real CLI",
    r"^tailscale ": "needs a network of Tailscale",
    r"^s(sh|cp) ": "needs another machine; tests/docs/test_remote.py forwards the socket, by sshd where there is one",
}
ENDS_WITH: dict[str, int] = {
    # pattern -> the exit code that the line ends with here, with demo in the place of the real CLI
    r"^clisup web tokens revoke ": 2,  # the id is another one on one's own machine
}
ENDLESS: tuple[str, ...] = (r"^clisup logs .*(-f|--follow)\b", r"--watch\b")
"""Lines that run until Ctrl-C: they get it after `ENDLESS_S`, and must not have failed by then."""

BEFORE: dict[str, Callable[[Scene], object]] = {
    # pattern -> what has to be there before the line
    r"^clisup notify test": lambda scene: scene.add_receiver(),
    r"^python fleet\.py|^python approvals_webhook\.py": lambda scene: scene.copy_examples(),
    r"^python llm_": lambda scene: scene.copy_examples(),
    r"--config \./clisup\.toml": lambda scene: scene.own_configuration(),
    r"git diff; \} \|": lambda scene: scene.run("git init -q"),
    r"--worktree-name": lambda scene: scene.run(
        "git init -q && git -c user.name=A -c user.email=a@example.org commit -q --allow-empty -m Begin"
    ),
    r"^du -s .*/sessions/\*": lambda scene: scene.newest(),
    r"^ci_job\.sh ": lambda scene: scene.copy_examples(scene.root / "bin"),
    r"^clisup steer ": lambda scene: scene.await_tool(),
    r"first\.py$": lambda scene: scene.write_program("docs/start/quickstart.md", "first.py"),
    r"^clisup fleet add build": lambda scene: scene.add_ssh(),
    r"^export CLISUP_SOCKET=": lambda scene: scene.forward(scene.home / ".clisup-build.sock"),
    r"^clisup replay claude-2\.1\.329-t4\.jsonl": lambda scene: scene.name_recording("claude-2.1.329-t4"),
}


def found(table: dict[str, object], line: str) -> str | None:
    """The pattern of the table that is in the line."""
    return next((pattern for pattern in table if re.search(pattern, line, re.MULTILINE)), None)
