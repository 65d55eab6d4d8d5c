"""What a CLI and its tools get to see of the daemon's environment: nothing that no list names."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness, until

SECRET = "canary-7f3a9c-"
CANARIES = [
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "NPM_TOKEN", "PYPI_TOKEN", "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL", "GEMINI_API_KEY", "GOOGLE_APPLICATION_CREDENTIALS",
    "AZURE_OPENAI_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CONFIG_DIR", "CODEX_HOME", "DATABASE_URL", "PGPASSWORD",
    "MYSQL_PWD", "REDIS_URL", "SLACK_TOKEN", "STRIPE_SECRET_KEY", "VAULT_TOKEN", "SSH_AUTH_SOCK", "KUBECONFIG",
    "DOCKER_AUTH_CONFIG", "SENTRY_DSN", "COOKIE_SECRET", "MY_COMPANY_PASSWORD", "INTERNAL_URL", "UNHEARD_OF",
    "NOTIFY_SOCKET", "LISTEN_FDS", "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM", "NODE_OPTIONS", "BUN_OPTIONS",
    "PYTHONSTARTUP", "BASH_ENV", "BASH_FUNC_ls%%", "PERL5OPT", "CLAUDECODE",
]  # fmt: skip

pytestmark = pytest.mark.cold  # what `execve` leaves in /proc is looked at


@pytest.fixture
def canaries() -> dict[str, str]:
    values = {name: f"{SECRET}{n:02d}" for n, name in enumerate(CANARIES)}
    return values | {"LISTEN_FDS": "0", "NOTIFY_SOCKET": f"/nowhere/{SECRET}"}


@pytest.mark.fault(34)
@pytest.mark.fault(35)
@pytest.mark.fault(36)
def test_nothing_of_the_daemons_environment_goes_anywhere(
    serve: Callable[..., Harness], canaries: dict[str, str], tmp_path: Path
) -> None:
    assert len(CANARIES) >= 40
    daemon = serve(env=canaries)
    session = daemon.new()
    wait = f"touch {tmp_path}/up; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    turn = session.prompt(f"@env-all\n@orphan setsid 60\n@bash env; {wait}\nbye")
    until((tmp_path / "up").exists)
    tree = [*session.processes(), session.keeper()]
    assert len(tree) >= 4
    for pid in tree:
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        assert SECRET.encode() not in environ
        names = {entry.partition(b"=")[0].decode() for entry in environ.split(b"\0")}
        assert not names & set(CANARIES) - {"CLAUDECODE"}  # the CLI sets this one for its tools, as claude does
    (tmp_path / "go").touch()
    assert session.end_of(turn)["outcome"] == "completed"
    for path in (daemon.root / "home", daemon.state):
        for file in (file for file in path.rglob("*") if file.is_file()):
            assert SECRET.encode() not in file.read_bytes(), file
    assert SECRET not in daemon.log.read_text() and SECRET not in str(session.events())
    started = session.events("process_started")[0]
    assert started["env_attested"] is True and "PATH" in started["env_names"]
    assert {"CLISUP_SESSION", "CLISUP_RUN", "CLISUP_STATE_ID"} <= set(started["env_names"])


@pytest.mark.fault(34)
def test_a_variable_that_is_no_utf_8_comes_to_the_cli_as_it_is(serve: Callable[..., Harness]) -> None:
    value = os.fsdecode(b"caf\xe9")
    daemon = serve(env={"ODD": value}, demo={"pass_env": ["ODD"]})
    session = daemon.new()
    session.prompt("@sleep 60")
    assert b"ODD=caf\xe9" in Path(f"/proc/{session.cli()}/environ").read_bytes().split(b"\0")


def test_the_daemons_own_environ_is_clean(serve: Callable[..., Harness], canaries: dict[str, str]) -> None:
    daemon = serve(env=canaries)
    own = {name: value for name, value in canaries.items() if name not in ("NOTIFY_SOCKET", "LISTEN_FDS")}
    environ = Path(f"/proc/{daemon.pid}/environ").read_bytes()
    assert not [name for name, value in own.items() if value.encode() in environ]
    assert os.stat(f"/proc/{daemon.pid}/environ").st_uid == 0  # undumpable: root's alone


def test_what_is_set_or_passed_on_purpose_arrives(serve: Callable[..., Harness]) -> None:
    daemon = serve(
        env={"PASSED": "passed-value-123", "HELD": "held-value-1234"},
        demo={"pass_env": ["PASSED"], "env": {"ON_PURPOSE": "purpose-value-123"}},
    )
    session = daemon.new()
    session.ask("@env PASSED HELD ON_PURPOSE\n@bash echo $PASSED $HELD $ON_PURPOSE >&2; env >&2; true")
    said = str(session.events("content_delta"))
    assert "PASSED: present" in said and "HELD: absent" in said and "ON_PURPOSE: present" in said
    report = daemon.call("backend/env", name="demo")
    assert {row["name"] for row in report["set"]} >= {"ON_PURPOSE"}
    assert "HELD" in {row["name"] for row in report["dropped"]} and "PASSED" in {row["name"] for row in report["kept"]}
    assert "value-123" not in str(report) and "purpose-value-123" not in daemon.log.read_text()


def test_the_keys_that_a_backend_would_log_in_with_are_told_where_they_are_held_back(
    serve: Callable[..., Harness],
) -> None:
    keys = {
        "ANTHROPIC_API_KEY": "sk-key-value",
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:1",
        "OPENAI_API_KEY": "sk-other",
    }
    daemon = serve(env=keys)
    assert daemon.call("backend/env", name="demo")["held_back"] == ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL"]
    assert daemon.call("backend/env", name="codex")["held_back"] == [], "its app-server takes no key from a variable"


@pytest.mark.fault(83)
@pytest.mark.parametrize(
    ("backend", "place"),
    [("claude", "CLAUDE_CONFIG_DIR"), ("claude", "CLAUDE_CODE_USE_BEDROCK"), ("codex", "CODEX_HOME")],
)
def test_another_place_or_provider_of_a_login_is_told_where_it_is_held_back(
    serve: Callable[..., Harness], backend: str, place: str
) -> None:
    daemon = serve(env={place: "/srv/elsewhere"})
    assert daemon.call("backend/env", name=backend)["held_back"] == [place]
    assert daemon.call("backend/env", name="gemini")["held_back"] == []


@pytest.mark.fault(77)
def test_a_pattern_brings_no_scrubbed_name_back(serve: Callable[..., Harness]) -> None:
    daemon = serve(env={"ANTHROPIC_API_KEY": "sk-key-value"}, demo={"pass_env": ["ANTHROPIC_*"]}, start=False)
    process = daemon.launch()
    assert process.wait(30) == 78
    assert "'ANTHROPIC_*'" in daemon.log.read_text() and "sk-key-value" not in daemon.log.read_text()
