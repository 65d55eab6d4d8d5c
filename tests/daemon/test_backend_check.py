"""`backend/check`, and a list of backends that no hanging CLI holds up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from harness import Harness, until

import clisup
from clisup.backends.registry import get_adapter
from clisup.daemon.ops import doctor
from clisup.errors import ClisupError
from clisup.ops.doctor import MACHINE_CHECKS, DirectoryFacts
from clisup.ops.doctor_backend import BACKEND_CHECKS
from tests.fakecli import COMMAND

Serve = Callable[..., Harness]
HANGS = "#!/bin/sh\necho $$ >> {asked}\nexec sleep 1000\n"
SAYS = "#!/bin/sh\ncase $1 in --version) echo '{version} (Claude Code)';; auth) {auth};; *) exit 9;; esac\n"


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def claude_table(path: Path, more: str = "") -> str:
    return f"[backends.claude]\ncommand = ['{path}']\n{more}\n"


def check(daemon: Harness, name: str, **params: Any) -> dict[str, dict[str, Any]]:
    return {found["check"]: found for found in daemon.call("backend/check", name=name, **params)}


def test_every_check_of_the_machine_and_of_a_backend_is_done_in_order(daemon: Harness) -> None:
    found = daemon.call("backend/check", name="demo", cwd=str(daemon.cwd))
    # no target is configured, and no gateway
    names = [name for name, _ in (*MACHINE_CHECKS, *BACKEND_CHECKS) if name not in ("notify", "gateway")]
    assert [one["check"] for one in found] == names
    assert {one["backend"] for one in found} == {None, "demo"}
    by_name = {one["check"]: one for one in found}
    assert by_name["daemon"]["detail"].startswith(f"clisup {clisup.__version__}, pid {daemon.pid}, ready")
    assert by_name["version"]["detail"].startswith("1.0.0 ")
    assert COMMAND[-1] in by_name["argv"]["detail"]
    assert not [one for one in found if one["status"] == "fail"]


def test_without_a_name_all_backends_are_looked_at_and_an_absent_default_only_warns(daemon: Harness) -> None:
    everywhere = daemon.call("backend/check")
    assert "cwd" not in [one["check"] for one in everywhere]
    (claude,) = [one for one in everywhere if one["backend"] == "claude"]
    assert (claude["check"], claude["status"]) == ("executable", "warn")
    (named,) = [one for one in daemon.call("backend/check", name="claude") if one["backend"] == "claude"]
    assert (named["status"], named["fix"]) == ("fail", claude["fix"])
    with pytest.raises(ClisupError) as caught:
        daemon.call("backend/check", name="nope")
    assert caught.value.kind == "backend_not_found"


@pytest.mark.parametrize(
    ("auth", "status"),
    [("echo '{\"loggedIn\": true}'", "ok"), ("echo '{\"loggedIn\": false}'; exit 1", "fail"), ("exit 1", "ok")],
)
def test_the_cli_itself_is_asked_whether_it_is_logged_in(serve: Serve, tmp_path: Path, auth: str, status: str) -> None:
    path = script(tmp_path / "claude", SAYS.format(version="2.1.329", auth=auth))
    daemon = serve(raw=claude_table(path), env={"ANTHROPIC_API_KEY": "canary-7f3a"})
    found = check(daemon, "claude")
    assert (found["version"]["status"], found["login"]["status"]) == ("ok", status)
    assert ("ANTHROPIC_API_KEY" in found["login"]["fix"]) is (status == "fail")
    assert "canary" not in str(found)


def test_a_version_that_is_too_old_fails_with_the_command_that_updates_it(serve: Serve, tmp_path: Path) -> None:
    daemon = serve(raw=claude_table(script(tmp_path / "claude", SAYS.format(version="2.1.197", auth="exit 1"))))
    found = check(daemon, "claude")
    assert found["version"]["status"] == "fail" and "2.1.197" in found["version"]["detail"]
    assert "claude update" in found["version"]["fix"]


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "qwen", "opencode"])
def test_a_version_that_is_newer_than_all_checked_ones_runs_with_one_warning_everywhere(
    serve: Serve, tmp_path: Path, name: str
) -> None:
    adapter = get_adapter(name)
    said = {"claude": "9.0.0 (Claude Code)", "codex": "codex-cli 9.0.0"}.get(name, "9.0.0")
    path = script(tmp_path / name, f"#!/bin/sh\necho '{said}'\n")
    daemon = serve(raw=f'[backends.{name}]\ncommand = ["{path}"]\nsetting_sources = "user,project"\n')
    found = check(daemon, name)
    assert found["version"]["status"] == "warn" and adapter.newest_checked in found["version"]["detail"]
    (row,) = [row for row in daemon.call("backend/list") if row["name"] == name]
    assert (row["version"], row["supported"], row["newer_than"]) == ("9.0.0", True, adapter.newest_checked)
    session = daemon.call("session/new", backend=name, cwd=str(tmp_path))["session_id"]
    daemon.call("session/prompt", session_id=session, prompt="Hello.", wait=True)
    events = daemon.call("session/events", session_id=session)["events"]
    assert [e["newer_than"] for e in events if e["type"] == "process_started"][:1] == [adapter.newest_checked]


def test_a_range_in_the_configuration_is_the_operators_own_check(serve: Serve, tmp_path: Path) -> None:
    path = script(tmp_path / "claude", SAYS.format(version="9.0.0", auth="exit 1"))
    daemon = serve(raw=claude_table(path, 'versions = ">=9"'))
    assert check(daemon, "claude")["version"]["status"] == "ok"
    assert not any(row["newer_than"] for row in daemon.call("backend/list"))


def test_lists_that_are_older_than_the_cli_warn(serve: Serve, tmp_path: Path) -> None:
    daemon = serve(raw=claude_table(script(tmp_path / "claude", SAYS.format(version="9.0.0", auth="exit 1"))))
    found = check(daemon, "claude")
    assert found["scrub lists"]["status"] == "warn" and "--drift claude" in found["scrub lists"]["fix"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_and_a_refused_flag_in_args_is_a_fail(serve: Serve, tmp_path: Path) -> None:
    path = script(tmp_path / "claude", SAYS.format(version="2.1.329", auth="exit 1"))
    daemon = serve(raw=claude_table(path, "args = ['--dangerously-skip-permissions']"))
    assert check(daemon, "claude")["root"]["status"] == "fail"


def test_a_directory_that_is_not_there_and_one_that_everybody_writes_to_are_told(
    daemon: Harness, tmp_path: Path
) -> None:
    assert check(daemon, "demo", cwd=f"{tmp_path}/absent")["cwd"]["status"] == "fail"
    tmp_path.chmod(0o777)
    assert check(daemon, "demo", cwd=str(tmp_path))["cwd"]["status"] == "warn"


async def test_a_file_system_that_does_not_answer_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = threading.Event()

    def hang(path: str, **_entries: bool) -> DirectoryFacts:
        answer.wait(60 if path == "/dead" else 0)
        return DirectoryFacts(path, mode=0o700)

    monkeypatch.setattr(doctor, "directory_facts", hang)
    monkeypatch.setattr(doctor, "LOOK_LIMIT_S", 0.2)
    around = doctor.Surroundings(str(tmp_path), f"{tmp_path}/s", {}, "none", None, cwd="/dead")
    with trio.fail_after(30):
        found = {one.check: one for one in await doctor.diagnose_machine(around)}
    answer.set()
    assert found["cwd"].status == "fail" and "does not answer" in found["cwd"].detail


def test_a_hanging_cli_ends_no_check_but_its_own(serve: Serve, tmp_path: Path) -> None:
    path = script(tmp_path / "claude", HANGS.format(asked=tmp_path / "asked"))
    found = check(serve(raw=claude_table(path)), "claude")
    assert found["version"]["status"] == "fail" and "reported no version" in found["version"]["detail"]
    assert found["login"]["status"] == "ok" and "cannot tell" in found["login"]["detail"]
    assert list(found)[-1] == "drift"
    for pid in (tmp_path / "asked").read_text().split():
        until(lambda pid=pid: not os.path.exists(f"/proc/{pid}"))


@pytest.mark.fault(83)
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#!/usr/bin/env no-such-node\n", "it exited with code 127 and said: /usr/bin/env: "),
        (
            "#!/bin/sh\necho 'No version is set for command claude' >&2; exit 126\n",
            "code 126 and said: No version is set",
        ),
        ("#!/bin/sh\r\necho\n", "it cannot be started: No such file or directory"),
        ("#!/bin/sh\nkill -9 $$\n", "signal 9 ended it and said nothing"),
    ],
)
def test_a_cli_without_a_version_is_quoted_with_what_a_shim_may_miss(
    serve: Serve, tmp_path: Path, text: str, words: str
) -> None:
    daemon = serve(raw=claude_table(script(tmp_path / "claude", text)), env={"ASDF_DATA_DIR": "/opt/asdf"})
    with pytest.raises(ClisupError) as refused:
        daemon.call("session/new", backend="claude", cwd=str(daemon.cwd))
    assert refused.value.kind == "backend_unavailable" and words in refused.value.message
    assert 'pass_env = ["ASDF_DATA_DIR"]' in refused.value.hint and "clisup env claude" in refused.value.hint


def test_a_version_on_stderr_is_a_version(serve: Serve, tmp_path: Path) -> None:
    daemon = serve(raw=claude_table(script(tmp_path / "claude", "#!/bin/sh\necho '2.1.330 (Claude Code)' >&2\n")))
    (row,) = [row for row in daemon.call("backend/list") if row["name"] == "claude"]
    assert (row["version"], row["supported"]) == ("2.1.330", True)


@pytest.mark.fault(83)
@pytest.mark.parametrize(("expires_in_s", "asked"), [(-3600, False), (60, False), (86_400, True)])
def test_a_login_that_would_be_renewed_is_not_asked_for(
    serve: Serve, tmp_path: Path, expires_in_s: int, asked: bool
) -> None:
    mark = tmp_path / "asked"
    says = f"#!/bin/sh\n[ $1 = --version ] && echo '2.1.330 (Claude Code)' && exit\ntouch {mark}\necho '{{\"loggedIn\": true}}'\n"
    daemon = serve(raw=claude_table(script(tmp_path / "claude", says)))
    store = daemon.root / "home/.claude/.credentials.json"
    store.parent.mkdir()
    login = {"accessToken": "a", "refreshToken": "r", "expiresAt": int((time.time() + expires_in_s) * 1000)}
    store.write_text(json.dumps({"claudeAiOauth": login}))
    found = check(daemon, "claude")["login"]
    assert (mark.exists(), found["status"]) == (asked, "ok")
    assert ("was not asked" in found["detail"]) is not asked


def test_a_hanging_cli_holds_up_no_list_and_is_asked_once_for_many(serve: Serve, tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    daemon = serve(raw=claude_table(script(tmp_path / "claude", HANGS.format(asked=asked))))
    for method in ("daemon/status", "backend/list"):
        answer = daemon.call(method)
        rows = {row["name"]: row for row in (answer["backends"] if method == "daemon/status" else answer)}
        assert rows["demo"]["supported"] is True
        assert "reported no version so far" in rows["claude"]["unavailable_reason"]
    assert len(asked.read_text().split()) == 1


def test_a_slow_cli_is_known_to_the_next_list(serve: Serve, tmp_path: Path) -> None:
    go = tmp_path / "go"
    slow = f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.05; done\necho '2.1.329 (Claude Code)'\n"
    daemon = serve(raw=claude_table(script(tmp_path / "claude", slow)))

    def row() -> dict[str, Any]:
        (found,) = [row for row in daemon.call("backend/list") if row["name"] == "claude"]
        return dict(found)

    assert row()["version"] is None
    go.touch()
    until(lambda: row()["version"] == "2.1.329")


# -- drift of frames --------------------------------------------------------------------------------------------------


def drift_of(daemon: Harness) -> list[dict[str, Any]]:
    return list(daemon.call("daemon/status")["drift"])


@pytest.mark.fault(29)
def test_unknown_frames_and_fields_are_counted_per_version_and_kept(serve: Serve) -> None:
    daemon = serve()
    session = daemon.new()
    session.ask("hello\n@bash echo hi\nbye")
    assert drift_of(daemon) == []
    odd = '{"type":"system","subtype":"status","status":null,"mood":"good","session_id":"s","uuid":"u"}'
    session.ask(f"@unknown\n@raw {odd}\nbye")
    (entry,) = drift_of(daemon)
    assert (entry["kind"], entry["version"], entry["fields"]) == ("demo", "1.0.0", {"system/status: mood": 1})
    assert "system/from_the_future" in entry["frames"] and set(entry["frames"].values()) == {1}
    daemon.restart()
    assert drift_of(daemon) == [entry]
    session.ask("@unknown\nbye")
    assert set(drift_of(daemon)[0]["frames"].values()) == {2}
    found = check(daemon, "demo")["drift"]
    assert found["status"] == "warn" and "system/from_the_future" in found["detail"]


def test_a_run_that_a_new_daemon_takes_over_is_counted_once(serve: Serve, tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    turn = session.prompt(f"@unknown\n@wait-file {tmp_path}/go\nbye")
    session.await_event("unparsed", nth=2)
    daemon.restart()
    (tmp_path / "go").touch()
    assert session.end_of(turn)["outcome"] == "completed"
    assert set(drift_of(daemon)[0]["frames"].values()) == {1}


def test_a_broken_file_of_counts_is_no_reason_not_to_start(serve: Serve) -> None:
    daemon = serve(start=False)
    daemon.state.mkdir(mode=0o700)
    (daemon.state / "drift.json").write_text('{"entries": [{"kind": 7}], "v"')
    daemon.start()
    assert drift_of(daemon) == []


def test_the_drift_of_names_is_of_the_cli_that_the_running_daemon_starts(serve: Callable[..., Harness]) -> None:
    """Its configuration and PATH are others than those of the one who asks."""
    daemon = serve(start=False)
    bin_dir = daemon.root / "bin"
    bin_dir.mkdir()
    script = bin_dir / "my-claude"
    script.write_text("#!/bin/sh\n# process.env.STRANGE_MODE\necho '2.1.330 (Claude Code)'\n")
    script.chmod(0o755)
    daemon.configure(raw='[backends.claude]\ncommand = ["my-claude"]\n')
    path = daemon.env["PATH"]
    daemon.env["PATH"] = f"{bin_dir}:{path}"
    daemon.start()
    env = {**daemon.env, "PATH": path, "CLISUP_SOCKET": daemon.socket}
    done = subprocess.run([sys.executable, "-m", "clisup", "doctor", "--drift", "claude", "--json"], env=env,
                          capture_output=True, text=True, check=False, timeout=60)  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["path"], found["version"], found["unknown"]) == (str(script), "2.1.330", ["STRANGE_MODE"])
    assert daemon.call("daemon/status")["daemon"]["config_file"] == str(daemon.config)
