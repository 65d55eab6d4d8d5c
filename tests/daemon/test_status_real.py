"""What `daemon/status` and `clisup status` say of a real daemon, and of its files once it is gone."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
from commands import begin, run
from harness import Harness, until
from pydantic import BaseModel
from session_probe import SessionProbe

from clisup.store.session_dir import SessionDir
from clisup.wire import status as models
from tests.journals import entry_at

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "schemas" / "status.json").read_text())


def valid(status: dict[str, Any]) -> dict[str, Any]:
    jsonschema.Draft202012Validator(SCHEMA).validate(status)
    assert not list(unknown(models.StatusResult, status)), "a field that no model has, and no page"
    return status


def unknown(model: type[BaseModel], value: dict[str, Any]) -> Iterator[str]:
    """Members that the model does not have, down to the rows."""
    yield from (f"{model.__name__}.{name}" for name in value.keys() - model.model_fields.keys())
    rows = {"daemon": "DaemonInfo", "storage": "StorageStatus", "sessions": "SessionRow", "backends": "BackendRow",
            "accounts": "AccountRow", "clients": "ClientRow", "totals": "Totals", "last_event": "LastEvent",
            "last_turn": "LastTurn", "next_timer": "NextTimer"}  # fmt: skip
    for name, below in value.items():
        for row in below if isinstance(below, list) else [below]:
            if isinstance(row, dict) and name in rows and model is not models.BackendRow:
                yield from unknown(getattr(models, rows[name]), row)


def busy(daemon: Harness, tmp_path: Path) -> SessionProbe:
    """A session whose turn runs a tool that takes memory, with one prompt behind it."""
    session = daemon.new(labels={"ticket": "4711"})
    session.prompt(f"a word\n@wait-file {tmp_path}/go\nbye")
    session.cli()
    session.prompt("the next")
    return session


def test_the_answer_obeys_the_published_schema_with_every_row_in_it(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    assert valid(daemon.call("daemon/status"))["sessions"] == []
    daemon.new().ask("hello")
    session = busy(daemon, tmp_path)
    status = valid(daemon.call("daemon/status"))
    row = next(s for s in status["sessions"] if s["session_id"] == session.id)
    assert (row["state"], row["turn_id"], len(row["queue"])) == ("running", "t1", 1)
    assert row["last_event"]["age_s"] >= 0 and row["next_timer"]["phase"]
    assert row["keeper_pid"] == session.keeper()
    assert status["clients"][0]["role"] == "admin" and "reason" not in status["daemon"]


def test_memory_is_that_of_the_whole_tree_and_null_where_nothing_runs(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    session = busy(daemon, tmp_path)
    until(lambda: session.get()["rss_bytes"])
    statm = Path(f"/proc/{session.cli()}/statm").read_text().split()
    assert session.get()["rss_bytes"] >= int(statm[1]) * os.sysconf("SC_PAGE_SIZE") * 0.5
    (tmp_path / "go").touch()
    session.end_of("t2")
    until(lambda: session.get()["rss_bytes"] is None)


def test_without_a_daemon_the_files_tell_of_turns_that_go_on_and_of_those_that_were_cut(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    ended = daemon.new()
    ended.ask("hello")
    until(lambda: ended.get()["state"] == "idle")
    before = {row["session_id"]: row for row in daemon.call("daemon/status")["sessions"]}
    goes_on, cut = busy(daemon, tmp_path), busy(daemon, tmp_path)
    keeper = goes_on.keeper()
    doomed = cut.keeper()
    daemon.kill()
    os.kill(doomed, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{doomed}").exists())
    told = run(daemon, "status", "--json")
    assert (told.returncode, told.stderr) == (3, "")
    status = valid(json.loads(told.stdout))
    assert status["daemon"]["state"] == "not_running" and status["daemon"]["running"] == 1
    rows = {row["session_id"]: row for row in status["sessions"]}
    assert (rows[goes_on.id]["state"], rows[goes_on.id]["keeper_pid"]) == ("running", keeper)
    assert rows[goes_on.id]["rss_bytes"] > 0 and rows[goes_on.id]["labels"] == {"ticket": "4711"}
    assert (rows[cut.id]["state"], rows[cut.id]["turn_id"], rows[cut.id]["pid"]) == ("unfinished", "t1", None)
    assert [turn["turn_id"] for turn in rows[cut.id]["queue"]] == ["t2"]
    same = ("tokens", "cost_usd", "turns", "next_seq", "model", "native_session_id", "state", "cwd")
    assert {name: rows[ended.id][name] for name in same} == {name: before[ended.id][name] for name in same}
    page = run(daemon, "status")
    assert page.returncode == 3
    assert (
        "not running; from disk: " in page.stdout
        and "1 turn goes on without it, 1 unfinished, 2 waiting" in page.stdout
    )
    near = run(daemon, "status", goes_on.id[:8])
    assert near.returncode == 3 and f"its keeper (pid {keeper}) goes on" in near.stdout
    assert run(daemon, "status", "-q").stdout.splitlines() == [cut.id, goes_on.id, ended.id]
    daemon.start()
    (tmp_path / "go").touch()
    assert goes_on.end_of("t2")["outcome"] == "completed"
    cut.end_of("t2")


def test_each_list_says_how_the_last_turn_ended_with_a_daemon_and_without(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    fresh, good, bad, slow, cut = (daemon.new(timeouts={"model_idle": 0.5} if at == 3 else None) for at in range(5))
    for session, script in ((good, "hello"), (bad, "@error authentication"), (slow, "@stall")):
        session.prompt(script)
        session.end_of("t1")
    cut.prompt("@stall")
    until(lambda: cut.get()["phase"] == "model")
    daemon.call("session/interrupt", session_id=cut.id)
    cut.end_of("t1")
    wanted = {fresh: "-", good: "completed", bad: "failed: authentication", slow: "timed_out", cut: "interrupted"}
    shown = {**wanted, fresh: "idle", slow: "timed out"}
    kinds = {fresh: None, good: None, bad: "authentication", slow: "idle_timeout", cut: "cancelled"}
    for code in (0, 3):
        rows = run(daemon, "status", "-o", "id,outcome").stdout.splitlines()[1:]
        assert dict(row.split(maxsplit=1) for row in rows) == {s.id: word for s, word in wanted.items()}
        listed = run(daemon, "sessions")
        assert listed.returncode == code
        page = run(daemon, "status").stdout
        for session, word in wanted.items():
            for lines in (listed.stdout.splitlines(), page.splitlines()):
                assert any(line.startswith(f"{session.id[:8]}  {shown[session]}  ") for line in lines)
            assert f"Outcome: {word}" in run(daemon, "status", session.id).stdout
        for row in map(json.loads, run(daemon, "sessions", "--json").stdout.splitlines()):
            last = row["last_turn"] or {"error_kind": None}
            assert last["error_kind"] == next(kind for s, kind in kinds.items() if s.id == row["session_id"])
        if code == 0:
            daemon.stop()


def test_while_a_turn_runs_the_outcome_of_the_one_before_is_for_programs_alone(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt("@crash")
    session.end_of("t1")
    session.prompt(f"@wait-file {tmp_path}/go")
    until(lambda: session.get()["turn_id"] == "t2")
    assert run(daemon, "status", "-o", "outcome").stdout.splitlines() == ["OUTCOME", "-"]
    (last,) = [row["last_turn"] for row in valid(daemon.call("daemon/status"))["sessions"]]
    assert (last["turn_id"], last["outcome"], last["error_kind"]) == ("t1", "failed", "crashed")
    (tmp_path / "go").touch()
    session.end_of("t2")


def test_a_look_from_disk_changes_no_byte_and_no_time_and_takes_no_lock(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    session, other = busy(daemon, tmp_path), daemon.new()
    other.ask("hello")
    until(lambda: not list(other.dir.glob("runs/*/ctl.sock")))  # the keeper has ended, too
    daemon.kill()
    journal = next((session.dir / "journal").iterdir())
    with journal.open("ab") as file:
        file.write(b'{"crc":"torn')
    tmp = session.dir / "session.json.1.tmp"
    tmp.write_bytes(b"half")
    before = snapshot(daemon.state)
    with open(daemon.state / "daemon.lock", "r+b") as lock:
        for args in (
            ("status",),
            ("status", "--json"),
            ("status", session.id),
            ("status", "-q"),
            ("status", "-o", "id"),
            ("sessions",),
            ("logs", "--all", "--raw"),
            ("logs", session.id[:8]),
        ):
            assert run(daemon, *args).returncode == 3
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody has it
    assert snapshot(daemon.state) == before
    with journal.open("r+b") as file:
        file.truncate(journal.stat().st_size - len(b'{"crc":"torn'))
    daemon.start()
    (tmp_path / "go").touch()
    session.end_of("t2")


def snapshot(root: Path) -> dict[str, tuple[int, int, int, int, bytes]]:
    """Every path with its inode, mode, size and times of change, and its bytes."""
    found = {}
    for path in sorted([root, *root.rglob("*")]):
        info = path.lstat()
        data = path.read_bytes() if path.is_file() else b""
        found[str(path)] = (info.st_ino, info.st_mode, info.st_mtime_ns, info.st_ctime_ns, data)
    spools = {name for name in found if name.endswith(".spool")}  # their CLI is alive
    return {name: what for name, what in found.items() if name not in spools}


def test_damage_and_a_newer_version_are_told_without_a_daemon_too(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    sessions = [daemon.new() for _ in range(6)]
    for session in sessions:
        session.ask("hello")
    daemon.stop()
    fine, damaged, newer_spec, newer_journal, odd, no_object = sessions
    journal = next((damaged.dir / "journal").iterdir())
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 0x55
    journal.write_bytes(data)
    files = SessionDir(str(daemon.state), newer_spec.id)
    made = files.load_spec()
    assert made is not None
    files.remove()
    files.create(made.model_copy(update={"version": 99}), {}, None, None)
    spec = json.loads((odd.dir / "session.json").read_text())
    (odd.dir / "session.json").write_text(json.dumps(spec | {"cwd": ["canary-of-the-file"]}))
    (no_object.dir / "session.json").write_text('["canary-of-the-file"]')
    other = next((newer_journal.dir / "journal").iterdir())
    head, _, rest = other.read_bytes().partition(b"\n")
    other.write_bytes(head.replace(b'"v":3,', b'"v":99,') + b"\n" + rest)
    told = run(daemon, "status", "--json")
    assert (told.returncode, told.stderr) == (3, "")
    status = valid(json.loads(told.stdout))
    assert {row["session_id"] for row in status["sessions"]} == {fine.id, odd.id, no_object.id}
    reasons = status["damaged_sessions"]
    assert "damaged at byte" in reasons[damaged.id]
    assert "a newer clisup wrote it (version 99)" in reasons[newer_spec.id]
    assert "a newer clisup wrote it (version 99)" in reasons[newer_journal.id]
    assert "canary" not in told.stdout, "the journal's values hold"
    wrong = run(daemon, "status", damaged.id)
    assert wrong.returncode == 69 and "damaged at byte" in wrong.stderr
    assert "canary" not in wrong.stderr and "Traceback" not in wrong.stderr
    near = run(daemon, "status", damaged.id)
    assert near.returncode == 69 and "damaged at byte" in near.stderr and "Traceback" not in near.stderr
    daemon.start()
    assert daemon.call("daemon/status")["damaged_sessions"].keys() == reasons.keys()


def test_sessions_and_logs_are_the_same_without_a_daemon(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    for text in ("hello", "some more\n@tool Bash ls"):
        daemon.new().ask(text)
    closed = daemon.new()
    closed.ask("bye")
    daemon.call("session/close", session_id=closed.id)
    busy(daemon, tmp_path)
    ways = [("sessions", "--json"), ("sessions", "--label", "ticket=4711", "--json"), ("sessions", "--state", "closed", "--json"),
            ("logs", closed.id, "-n", "2", "--json"), ("logs", "--all", "--json", "--raw")]  # fmt: skip
    live = [json_lines(run(daemon, *way).stdout) for way in ways]
    daemon.kill()
    told = [run(daemon, *way) for way in ways]
    assert {each.returncode for each in told} == {3}
    assert {each.stderr for each in told} == {f"clisup: the daemon is not running; from disk: {daemon.state}\n"}
    rest = [json_lines(each.stdout) for each in told]
    for before, after in zip(live[:3], rest[:3], strict=True):
        names = ("session_id", "state", "turns", "labels", "cost_usd")
        assert [[row[name] for name in names] for row in after] == [[row[name] for name in names] for row in before]
    assert (len(live[1]), len(live[2])) == (1, 1) and rest[3] == live[3] != []
    assert any("native" in event for event in rest[4]) and rest[4][: len(live[4])] == live[4]
    (tmp_path / "go").touch()


def json_lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_logs_without_a_daemon_say_what_is_damaged_and_go_on(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    fine, damaged, odd = (daemon.new() for _ in range(3))
    for session in (fine, damaged, odd):
        session.ask("hello")
    daemon.stop()
    journal = next((damaged.dir / "journal").iterdir())
    data = journal.read_bytes()
    at = data.index(b'"type":"session_init"')
    block = entry_at(data, at)[1].frames
    journal.write_bytes(data[:at] + b"#" + data[at + 1 :])
    (odd.dir / "session.json").write_text('["canary-of-the-file"]')
    every = run(daemon, "logs", "--all", "--json")
    events = json_lines(every.stdout)
    assert every.returncode == 3 and "canary" not in every.stdout + every.stderr
    assert {event["session_id"] for event in events} == {fine.id, damaged.id, odd.id}
    assert [(e["from_seq"], e["to_seq"], e["reason"]) for e in events if e["type"] == "gap"] == [
        (block.first, block.end - 1, "damaged")
    ]
    alone = run(daemon, "logs", odd.id)
    assert alone.returncode == 3 and "canary" not in alone.stderr and "Traceback" not in alone.stderr
    rows = run(daemon, "sessions")
    assert rows.returncode == 3 and fine.id[:8] in rows.stdout
    assert f"cannot read session {damaged.id}" in rows.stderr
    nobody = run(daemon, "logs", "0" * 8 + "-0000-4000-8000-" + "0" * 12)
    assert nobody.returncode == 4 and "no files of it are stored" in nobody.stderr
    follow = run(daemon, "logs", "--all", "-f")
    assert follow.returncode == 3 and "cannot reach the daemon" in follow.stderr


def test_who_holds_the_state_directory_without_answering_is_named(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    os.rename(daemon.socket, daemon.socket + ".away")
    told = run(daemon, "status", "--json")
    os.rename(daemon.socket + ".away", daemon.socket)
    assert told.returncode == 3
    answer = valid(json.loads(told.stdout))["daemon"]
    assert (answer["state"], answer["pid"]) == ("unreachable", daemon.pid)


def test_a_watch_goes_on_through_a_restart_and_ends_with_ctrl_c(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    daemon.new().ask("hello")
    watching = begin(daemon, "status", "--watch", "0.1", "--json")
    assert watching.stdout is not None

    def state() -> str:
        return str(json.loads(watching.stdout.readline())["daemon"]["state"])  # type: ignore[union-attr]  # see above

    try:
        assert state() == "ready"
        daemon.kill()
        until(lambda: state() == "not_running")
        daemon.start()
        until(lambda: state() == "ready")
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=60)
        assert (watching.returncode, errors) == (0, "")
    finally:
        watching.kill()
        watching.communicate()


def test_a_watch_in_a_pipe_gives_blocks_with_the_time(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    watching = begin(daemon, "status", "-o", "id,state", "--watch", "0.1")
    assert watching.stdout is not None
    try:
        lines = [watching.stdout.readline() for _ in range(10)]
        assert lines[0].rstrip().endswith("every 0.1 s") and lines[1] == "\n"
        assert lines[2].split() == ["ID", "STATE"] and lines[3].split() == [session.id, "idle"]
        assert lines[5].rstrip().endswith("every 0.1 s") and "\033" not in "".join(lines)
    finally:
        watching.kill()
        watching.communicate()


def test_waiting_outlives_the_daemon_and_a_stop_tells_what_it_waits_for(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    session = busy(daemon, tmp_path)
    waiting = begin(daemon, "wait", session.id)
    daemon.call("ping")
    until(lambda: any(c["subscriptions"] for c in daemon.call("daemon/status")["clients"]))
    daemon.restart()
    until(lambda: daemon.call("daemon/status")["daemon"]["running"] == 1)
    stopping = begin(daemon, "stop", "--json")
    assert stopping.stderr is not None
    assert "; 1 turn runs: it may end first" in stopping.stderr.readline()
    (tmp_path / "go").touch()
    out, _ = stopping.communicate(timeout=60)
    assert stopping.returncode == 0 and json.loads(out)["running"] == 1
    daemon.start()
    out, errors = waiting.communicate(timeout=60)
    assert waiting.returncode == 0, errors
    assert [line.split()[1:3] for line in out.splitlines()] == [["t1", "completed,"], ["t2", "completed,"]]


def test_a_title_is_set_shown_in_every_list_and_sessions_are_closed_by_names_and_all_at_once(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve()
    first, second, third = (daemon.new() for _ in range(3))
    first.ask("Say hello.")
    third.prompt(f"@wait-file {tmp_path}/go")
    until(lambda: third.get()["phase"] == "model")
    assert run(daemon, "set", first.id[:8], "--title", "Rewrite the parser").stdout == "title: Rewrite the parser\n"
    for args in (("status",), ("sessions",), ("sessions", "--all", "-o", "id,title"), ("status", first.id)):
        assert "Rewrite the parser" in run(daemon, *args).stdout
    done = run(daemon, "close", first.id, "dead", second.id)
    assert (done.returncode, len(done.stdout.splitlines())) == (4, 2) and "no session matches 'dead'" in done.stderr
    assert run(daemon, "close", "--idle", "0").stdout == "No open session is idle for so long.\n"
    assert run(daemon, "close", "--all").returncode == 2
    assert run(daemon, "close", "--all", "--yes").stdout == f"session {third.id}: closed\n"
    ended = {
        row["session_id"]: row
        for row in map(json.loads, run(daemon, "sessions", "--all", "--json").stdout.splitlines())
    }
    assert [ended[s.id]["state"] for s in (first, second, third)] == ["closed"] * 3
    assert "closed by a client" in run(daemon, "status", first.id).stdout
    assert [line.split("  ")[1] for line in run(daemon, "sessions", "--all").stdout.splitlines()[1:]] == [
        "closed: interrupted", "closed", "closed: completed",
    ]  # fmt: skip


def test_a_steered_prompt_is_in_the_logs_in_its_own_words(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new(mode="live")
    session.prompt(f"Begin.\n@bash sleep 0.2\n@wait-file {tmp_path}/go")
    session.await_event("tool_use")
    daemon.call("session/prompt", session_id=session.id, prompt="Leave the tests alone.", when_busy="steer")
    (tmp_path / "go").touch()
    session.end_of("t1")
    lines = run(daemon, "logs", "--no-deltas", session.id).stdout.splitlines()
    (steered,) = [line for line in lines if "Leave the tests alone." in line and "prompt_accepted" in line]
    assert re.search(r"  steered.*: Leave the tests alone\.$", steered)
