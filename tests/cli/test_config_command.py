"""`clisup config`: what is wrong, what it amounts to and where from, and the schema; without a daemon, and beside one."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import FakeDaemon, Peer

from clisup.config.keys import config_schema, flat
from clisup.config.model import parse_config
from clisup.errors import UsageError

Run = Callable[..., Any]
CANARY = "canary-7f3a-9b1d"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file that counts. No daemon runs, unless a test starts one."""
    path = tmp_path / "clisup.toml"
    path.write_text("[daemon]\nmax_running = 4\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return path


def values(ran: Any) -> dict[str, dict[str, Any]]:
    assert ran.code == 0, ran.err
    return {value["key"]: value for value in json.loads(ran.out)["values"]}


# -- check


def test_a_right_file_is_well(clisup: Run, file: Path) -> None:
    assert clisup("config", "check", "--config", str(file)) == (0, f"{file}: no mistakes\n", "")
    found = json.loads(clisup("config", "check", "--config", str(file), "--json").out)
    assert found == {"file": str(file), "exists": True, "problems": [], "ok": True}


def test_no_file_is_all_defaults_and_a_named_one_has_to_be_there(clisup: Run, file: Path, tmp_path: Path) -> None:
    ran = clisup("config", "check")
    assert (ran.code, ran.out) == (0, f"{tmp_path}/.config/clisup/config.toml: no such file, all defaults\n")
    ran = clisup("config", "check", "--config", str(tmp_path / "none.toml"))
    assert ran.code == 78 and "no such file" in ran.out


def test_all_that_is_wrong_is_told_with_its_line(clisup: Run, file: Path) -> None:
    file.write_text(
        "[daemon]\nmax_runing = 4\n\n[backends.claude]\nmode = 'sometimes'\nenv = { KEY = ['" + CANARY + "'] }\n"
    )
    ran = clisup("config", "check", "--config", str(file))
    assert ran.code == 78 and CANARY not in ran.out
    assert ran.out.splitlines() == [
        f"{file}:2: daemon.max_runing is not a known key; the nearest known key is 'max_running'",
        f"{file}:5: backends.claude.mode is wrong: Input should be 'auto', 'one-shot' or 'live'",
        f"{file}:6: backends.claude.env.KEY is wrong: Input should be a valid string",
    ]
    first, *_ = json.loads(clisup("config", "check", "--config", str(file), "--json").out)["problems"]
    assert (first["key"], first["line"], first["nearest"]) == ("daemon.max_runing", 2, "max_running")


def test_what_only_a_start_would_find_is_told_too(clisup: Run, file: Path) -> None:
    file.write_text(
        "[daemon]\nmax_queue = 1\n[backends.one]\nkind = 'clade'\n[backends.two]\nkind = 'acp'\n"
        "[backends.demo]\nenv = { LD_PRELOAD = 'x' }\n[backends.codex]\nversions = 'newest'\n"
    )
    found = json.loads(clisup("config", "check", "--config", str(file), "--json").out)
    told = sorted((problem["line"], problem["key"]) for problem in found["problems"])
    assert told == [(3, "backends.one"), (5, "backends.two"), (7, "backends.demo"), (9, "backends.codex")]
    assert "cannot use backend 'one', because 'clade' is no kind of backend" in str(found)
    assert "cannot use backends.codex.versions, because 'newest' is no range" in str(found)


def test_a_default_backend_is_no_mistake_unless_it_is_not_configured(clisup: Run, file: Path) -> None:
    file.write_text("[defaults]\nbackend = 'claude'\n")
    ran = clisup("config", "check", "--config", str(file))
    assert ran.code == 0, ran.out
    file.write_text("[defaults]\nbackend = 'nothing'\n")
    ran = clisup("config", "check", "--config", str(file))
    assert (ran.code, ran.out.count("cannot use defaults.backend")) == (78, 1)
    assert ran.out.startswith(f"{file}:2: ")


def test_a_value_that_is_not_in_its_file_is_told(clisup: Run, file: Path, tmp_path: Path) -> None:
    file.write_text(f"[backends.demo]\nenv_files = {{ KEY = '{tmp_path}/none' }}\n")
    ran = clisup("config", "check", "--config", str(file))
    assert ran.code == 78 and ran.out.startswith(f"{file}:1: cannot use backends.demo.env_files.KEY")
    (tmp_path / "none").write_text(CANARY + "\n")
    (tmp_path / "none").chmod(0o600)
    assert clisup("config", "check", "--config", str(file)).code == 0
    assert CANARY not in clisup("config", "show", "--config", str(file), "--json").out


def test_a_socket_that_is_too_long_is_told(clisup: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLISUP_SOCKET")
    file.write_text(f"[daemon]\nsocket = '/{'x' * 200}'\n")
    ran = clisup("config", "check", "--config", str(file))
    assert ran.code == 78 and f"{file}:2:" in ran.out and "201 bytes" in ran.out


@pytest.mark.parametrize(("text", "line"), [("[daemon]\nmax_queue = = 1\n", 2), ("a = 1\na = 2\n", 2)])
def test_a_file_that_is_no_toml_is_told_with_the_line(clisup: Run, file: Path, text: str, line: int) -> None:
    file.write_text(text)
    ran = clisup("config", "check", "--config", str(file))
    assert ran.code == 78 and ran.out.startswith(f"{file}:{line}: cannot read") and "hint: correct that line" in ran.out


# -- show


def test_every_value_is_shown_with_its_origin(
    clisup: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLISUP_CONFIG", str(file))
    monkeypatch.setenv("CLISUP_STATE_DIR", str(tmp_path / "state"))
    shown = values(clisup("config", "show", "--json", "--socket", "/run/x"))
    assert set(shown) == {key for key, _ in flat(parse_config({}))}
    assert shown["daemon.socket"]["value"] == "/run/x"
    assert shown["daemon.socket"]["origin"] == {"kind": "flag", "name": "--socket"}
    assert shown["daemon.state_dir"]["origin"] == {"kind": "environment", "name": "CLISUP_STATE_DIR"}
    assert shown["daemon.max_running"]["origin"] == {"kind": "file", "line": 2}
    assert shown["daemon.max_running"]["takes_effect"] == "at_once"
    assert shown["daemon.max_queue"] == {
        "key": "daemon.max_queue", "value": 100, "origin": {"kind": "default"}, "takes_effect": "at_once",
    }  # fmt: skip


def test_a_flag_goes_before_a_variable_that_before_the_file_and_that_before_the_default(
    clisup: Run, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLISUP_SOCKET")
    monkeypatch.delenv("CLISUP_STATE_DIR")

    def origin(*flags: str) -> tuple[str, str]:
        value = values(clisup("config", "show", "--json", "--config", str(file), *flags))["daemon.state_dir"]
        return value["value"], value["origin"]["kind"]

    assert origin() == (f"{tmp_path}/.local/state/clisup", "default")
    file.write_text("[daemon]\nstate_dir = '~/here'\n")
    assert origin() == (f"{tmp_path}/here", "file")
    monkeypatch.setenv("CLISUP_STATE_DIR", "/variable")
    assert origin() == ("/variable", "environment")
    assert origin("--state-dir", "/flag") == ("/flag", "flag")


def test_the_output_is_toml_that_means_the_same(clisup: Run, file: Path) -> None:
    file.write_text(
        "[daemon]\nrequest_wait_s = 0.5\n[backends.mine]\nkind = 'demo'\nargs = ['a \"b\"', '\\\\n']\n"
        "[[backends.mine.approvals.rules]]\ntool = '*'\ndecision = 'deny'\n"
        '[prices."gpt-6.1-*"]\ninput = 2\noutput = 0.5\n[prices.opus]\ninput = 1\noutput = 1\n'
    )
    out = clisup("config", "show", "--config", str(file), "--origin").out
    again = parse_config(tomllib.loads(out))
    assert again.backends["mine"] == parse_config(tomllib.loads(file.read_text())).backends["mine"]
    assert again.daemon.request_wait_s == 0.5
    assert again.prices == parse_config(tomllib.loads(file.read_text())).prices and len(again.prices) == 2
    assert 'prices."gpt-6.1-*".input = 2'.ljust(56) + f"  # {file}:10" in out
    assert f"# {file}:2" in out and "# default" in out and "# environment CLISUP_SOCKET" in out
    assert "backends.claude.mode" not in out and "# all defaults: backends.anthropic-api, backends.claude," in out


def test_secrets_are_never_shown(clisup: Run, file: Path) -> None:
    key = "sk-abcdefghijklmnopqrstuvwxyz0123"
    file.write_text(f"[backends.demo]\nenv = {{ API_KEY = '{CANARY}' }}\nargs = ['--key', '{key}']\n")
    for flags in ((), ("--json",), ("--origin",), ("backends.demo.env",)):
        out = clisup("config", "show", "--config", str(file), *flags).out
        assert CANARY not in out and key not in out and "[set]" in out


def test_only_what_begins_with_a_key_is_shown(clisup: Run, file: Path) -> None:
    shown = values(clisup("config", "show", "daemon.retention", "backends.claude.mode", "--json"))
    assert list(shown) == [
        "daemon.retention.days", "daemon.retention.bytes", "daemon.retention.keys", "daemon.retention.every_s",
        "daemon.retention.idle_close", "backends.claude.mode",
    ]  # fmt: skip
    ran = clisup("config", "show", "daemon.max_r")
    assert ran.code == 2 and "no such key" in ran.err


def test_a_wrong_configuration_is_exit_78(clisup: Run, file: Path) -> None:
    file.write_text("[daemon]\nmax_runing = 4\n")
    ran = clisup("config", "show", "--config", str(file))
    assert (ran.code, ran.out) == (78, "") and "(line 2)" in ran.err


# -- beside a daemon


def answer(daemon: FakeDaemon, result: Any) -> None:
    def reload(peer: Peer, params: dict[str, Any]) -> Any:
        assert params == {"dry_run": True}, "to look must change nothing"
        if isinstance(result, Exception):
            raise result
        return result

    daemon.handlers["daemon/reload"] = reload


@pytest.mark.parametrize(
    ("file_there", "changed", "words"),
    [
        (None, [], "the running daemon has these values"),
        (None, ["daemon.max_queue", "daemon.fsync"], "has other values of: daemon.max_queue, daemon.fsync (clisup daemon reload)"),
        (None, ["daemon.socket"], "has other values of: daemon.socket (clisup stop, then clisup start)"),
        ("/other.toml", [], "the running daemon reads another file: /other.toml"),
    ],
)  # fmt: skip
def test_whether_the_daemon_has_these_values_is_said(
    clisup: Run, daemon: FakeDaemon, file: Path, file_there: str | None, changed: list[str], words: str
) -> None:
    rows = [{"key": key, "what": "changed", "effect": "at_once"} for key in changed]
    answer(daemon, {"file": file_there or str(file), "changed": rows})
    assert words in clisup("config", "show", "--config", str(file)).out.splitlines()[-1]
    running = json.loads(clisup("config", "show", "--config", str(file), "--json").out)["daemon"]
    assert running == {"running": True, "file": file_there or str(file), "differ": changed}


def test_a_daemon_that_refuses_the_file_says_why(clisup: Run, daemon: FakeDaemon, file: Path) -> None:
    answer(daemon, UsageError("cannot reload, because x", kind="session_busy"))
    assert clisup("config", "show", "--config", str(file)).out.endswith("as it is now: cannot reload, because x\n")


def test_no_daemon_is_said(clisup: Run, file: Path, socket_path: Path) -> None:
    assert clisup("config", "show", "--config", str(file)).out.endswith(f"# no daemon runs at {socket_path}\n")
    assert json.loads(clisup("config", "show", "--json").out)["daemon"] == {"running": False}


# -- schema and help


def test_the_schema_is_the_models(clisup: Run) -> None:
    assert json.loads(clisup("config", "schema").out) == config_schema()


@pytest.mark.parametrize("name", ["check", "show", "schema"])
def test_each_command_has_an_example(clisup: Run, name: str) -> None:
    assert f"clisup config {name}" in clisup("config", name, "--help").out.split("Example:")[1]


def test_the_group_alone_shows_its_commands(clisup: Run) -> None:
    ran = clisup("config")
    assert ran.code == 0 and "\n  check" in ran.out
