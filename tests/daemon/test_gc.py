"""`clisup gc`, with a daemon and without one: what can go goes, and nothing of a session that works, waits or rests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from commands import Done, environment, run
from harness import Harness, until
from session_probe import SessionProbe

from clisup.daemon.ops import garbage
from clisup.daemon.ops.cleanup import Clearing
from clisup.daemon.ops.garbage import Removable
from clisup.daemon.ops.offline import clean_up_offline
from clisup.errors import ClisupError

OLD = time.time() - 40 * 86_400
Serve = Callable[..., Harness]


def files_of(session: SessionProbe) -> dict[str, bytes]:
    return {str(path.relative_to(session.dir)): path.read_bytes() for path in session.dir.rglob("*") if path.is_file()}


def closed(daemon: Harness, *, days: float = 0) -> SessionProbe:
    session = daemon.new()
    session.ask("hello")
    session.call("close")
    then = time.time() - days * 86_400
    for path in (session.dir / "journal").iterdir():
        os.utime(path, (then, then))
    return session


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def litter(daemon: Harness, session: SessionProbe) -> dict[str, Path]:
    """One of each kind that a crash can leave; `session` is an open one at rest."""
    half = session.dir / "session.json.4194000.tmp"
    half.write_bytes(b"half")
    os.utime(half, (OLD, OLD))
    young = session.dir / "runs.4194000.tmp"
    young.write_bytes(b"half, and perhaps being written")
    trash = daemon.state / "trash" / "3f2a0000-0000-4000-8000-000000000001"
    trash.mkdir(parents=True)
    (trash / "file").write_bytes(b"x" * 1000)
    run_dir = session.dir / "runs" / "7"
    run_dir.mkdir()
    (run_dir / "intent.json").write_text("{}")
    scratch = session.dir / "runs" / "1" / "scratch"
    scratch.mkdir()
    (scratch / "settings.json").write_text("{}")
    bound = Path(f"{daemon.socket}.{dead_pid()}")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(bound))
    return {"temporary": half, "trash": trash, "run": run_dir, "scratch": scratch, "socket": bound, "young": young}


def items(answer: dict[str, Any], daemon: Harness) -> dict[str, set[str]]:
    """Kind -> paths, of this daemon's own directories."""
    found: dict[str, set[str]] = {}
    for item in answer["items"]:
        if item["path"].startswith(str(daemon.root)):
            found.setdefault(item["kind"], set()).add(item["path"])
    return found


def gc(daemon: Harness, *args: str) -> dict[str, Any]:
    done: Done = run(daemon, "gc", "--json", *args)
    assert (done.returncode, done.stderr) == (0, ""), done
    return dict(json.loads(done.stdout))


@pytest.mark.parametrize("alive", [True, False], ids=["with a daemon", "without one"])
def test_everything_that_can_go_goes_and_a_dry_run_only_says_so(serve: Serve, alive: bool) -> None:
    daemon = serve()
    old, young, resting = closed(daemon, days=8), closed(daemon, days=6), daemon.new()
    resting.ask("hello")
    until(lambda: resting.get()["state"] == "idle")
    if not alive:
        daemon.stop()
    left = litter(daemon, resting)
    private = young.dir / "private"
    private.mkdir()
    (private / "secrets.json").write_text('{"KEY": "value"}')
    expected = {kind: {str(path)} for kind, path in left.items() if kind != "young"}
    expected |= {"session": {str(old.dir)}, "private": {str(private)}}
    told = gc(daemon, "--dry-run")
    assert told["dry_run"] and items(told, daemon) == expected
    assert told["bytes"] >= sum(i["bytes"] for i in told["items"] if i["kind"] == "session") > 0
    assert all(path.exists() for path in [*left.values(), old.dir, private])
    done = gc(daemon)
    assert not done["dry_run"] and items(done, daemon) == expected and not done["failed"]
    assert not any(path.exists() for kind, path in left.items() if kind != "young")
    assert not old.dir.exists() and not private.exists()
    assert left["young"].exists() and young.dir.exists()
    assert items(gc(daemon), daemon) == {}
    assert items(gc(daemon, "--older-than", "0"), daemon) == {"session": {str(young.dir)}}
    if not alive:
        daemon.start()
    assert resting.ask("again")["outcome"] == "completed"
    for gone in (old, young):
        with pytest.raises(ClisupError, match="not found"):
            gone.get()


@pytest.mark.parametrize("alive", [True, False], ids=["with a daemon", "without one"])
def test_a_session_that_works_waits_or_rests_is_never_touched(serve: Serve, tmp_path: Path, alive: bool) -> None:
    daemon = serve(raw="[daemon.retention]\nevery_s = 86400\ndays = 1\nbytes = 1\n")
    working, resting = daemon.new(), daemon.new(mode="live")
    working.prompt(f"@wait-file {tmp_path}/go\nbye")
    working.cli()
    working.prompt("waits")
    resting.ask("hello")
    until(lambda: resting.get()["state"] == "idle" and resting.get()["pid"])
    until(lambda: b'"state":"idle"' in (resting.dir / "runs" / "1" / "out.spool").read_bytes()[-300:])  # its last line
    until(lambda: not list(resting.dir.glob("runs/1/said/*")))  # the CLI has the prompt
    until(lambda: not list(resting.dir.glob("prompts/*")))  # its turn is over
    for session in (working, resting):
        (session.dir / "runs" / "9").mkdir()
        for path in session.dir.rglob("*"):
            if path.is_file() and path.suffix != ".spool":
                os.utime(path, (OLD, OLD))
    if not alive:
        daemon.kill()
    before = [files_of(working), files_of(resting)]
    pids = [*working.processes(), *resting.processes()]
    assert items(gc(daemon, "--older-than", "0"), daemon) == ({} if alive else {"socket": {daemon.socket}})
    for session, files in zip((working, resting), before, strict=True):
        now = files_of(session)
        assert sorted(now) == sorted(files) and [name for name in now if now[name] != files[name]] == []
    assert [*working.processes(), *resting.processes()] == pids
    for session in (working, resting):
        assert (session.dir / "runs" / "9").is_dir()
    if not alive:
        daemon.start()
    (tmp_path / "go").touch()
    assert working.end_of("t1")["text"] == "bye" and working.end_of("t2")["outcome"] == "completed"
    assert resting.ask("again")["outcome"] == "completed"


def test_of_the_sockets_of_claudes_only_those_of_its_own_runs_go(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = serve()
    session, folder = daemon.new(), tmp_path / "cc-socks"
    folder.mkdir()
    session.prompt(f"@wait-file {tmp_path}/go\nbye")
    mine, foreign = folder / f"{session.cli()}.sock", folder / f"{dead_pid()}.sock"
    for path in (mine, foreign):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(path))
    (tmp_path / "go").touch()
    session.end_of("t1")
    daemon.stop()
    monkeypatch.setattr(garbage, "CLI_SOCKETS", str(folder))
    for name, value in environment(daemon).items():
        monkeypatch.setenv(name, value)
    os.utime(foreign, (time.time() - 3600,) * 2)
    done = clean_up_offline(dry_run=False, older_than_s=1e9)
    assert [item["path"] for item in done["items"] if item["kind"] == "socket"] == [str(mine)]
    assert [item["path"] for item in done["foreign"]] == [str(foreign)]
    assert foreign.exists() and not mine.exists()
    for dry_run in (True, False):
        done = clean_up_offline(dry_run=dry_run, older_than_s=1e9, foreign=True)
        assert [item["path"] for item in done["items"] if item["kind"] == "socket"] == [str(foreign)]
        assert done["foreign"] == [] and foreign.exists() is dry_run


def test_what_retention_would_remove_goes_without_a_daemon_too_but_never_the_last_segment(serve: Serve) -> None:
    daemon = serve(daemon={"segment_bytes": 65536})
    session = daemon.new()
    for _ in range(3):
        session.ask("@stream 300 400\n@stderr some words\nbye")
    until(lambda: session.get()["state"] == "idle")
    daemon.stop()
    segments = sorted((session.dir / "journal").iterdir())
    assert len(segments) > 3
    for path in segments:
        os.utime(path, (OLD, OLD))
    told = gc(daemon)
    assert items(told, daemon) == {"events": {str(session.dir / "journal")}}
    assert sorted((session.dir / "journal").iterdir()) == segments[-1:]
    os.utime(segments[-1])  # or the daemon's own retention takes it at the start
    daemon.start()
    assert session.get()["turns"] == 3 and session.get()["first_seq"] == int(segments[-1].stem)
    assert session.ask("again")["outcome"] == "completed"


def test_a_session_that_cannot_be_read_is_left_alone(serve: Serve) -> None:
    daemon = serve()
    damaged = closed(daemon, days=100)
    daemon.stop()
    journal = next((damaged.dir / "journal").iterdir())
    journal.write_bytes(b"{" + journal.read_bytes()[1:].replace(b"hello", b"HELLO"))
    os.utime(journal, (OLD, OLD))
    before = files_of(damaged)
    assert items(gc(daemon, "--older-than", "0"), daemon) == {}
    daemon.start()
    assert daemon.call("daemon/status")["damaged_sessions"].keys() == {damaged.id}
    assert items(gc(daemon, "--older-than", "0"), daemon) == {}
    assert files_of(damaged) == before


def test_where_somebody_holds_the_state_directory_and_does_not_answer_nothing_is_done(serve: Serve) -> None:
    daemon = serve()
    session = closed(daemon, days=100)
    os.rename(daemon.socket, daemon.socket + ".away")
    done = run(daemon, "gc")
    os.rename(daemon.socket + ".away", daemon.socket)
    assert done.returncode == 75 and f"pid {daemon.pid} holds the state directory" in done.stderr
    assert session.dir.exists()


def test_people_get_a_table_and_the_sum(serve: Serve) -> None:
    daemon = serve()
    session = closed(daemon, days=10)
    told = run(daemon, "gc", "--dry-run").stdout
    assert "KIND" in told and f"closed 10.0 days ago  {session.dir}" in told and "\n\nwould remove " in told
    assert "\n\nremoved " in run(daemon, "gc").stdout
    assert not session.dir.exists()


def test_several_at_once_remove_everything_once_and_fail_for_nobody(serve: Serve) -> None:
    daemon = serve()
    sessions = [closed(daemon, days=10) for _ in range(12)]
    with daemon.wire() as one, daemon.wire() as other:
        asked = [(wire, wire.post("daemon/gc", dry_run=False)) for wire in (one, other) for _ in range(4)]
        for session in sessions[::2]:
            with suppress(ClisupError):  # it may be gone already
                session.call("delete")
        answers = [wire.answer(id_) for wire, id_ in asked]
    assert not any(answer["failed"] for answer in answers)
    assert not any(session.dir.exists() for session in sessions)
    assert list((daemon.state / "trash").iterdir()) == []


async def test_a_daemon_that_is_told_to_stop_does_not_first_remove_ten_thousand_sessions() -> None:
    """What was begun is done whole; the rest stays for the next time."""
    removed: list[str] = []
    manager: Any = SimpleNamespace(
        find=lambda session_id: session_id,
        cursors=SimpleNamespace(drop_sessions=lambda ids: None),
        services=SimpleNamespace(storage=SimpleNamespace(stopping=False)),
    )

    async def delete(session_id: str) -> None:
        removed.append(session_id)
        manager.services.storage.stopping = len(removed) == 2

    manager.delete = delete
    found = [Removable("session", f"/{n}", 0, "", str(n)) for n in range(5)]
    retention: Any = None
    failed = await Clearing(manager, retention, "")._remove_all(found)
    assert removed == ["0", "1"] and failed == dict.fromkeys(["/2", "/3", "/4"], "the daemon is stopping")


def test_a_name_that_is_no_text_is_removed_and_told(serve: Serve) -> None:
    daemon = serve()
    half = Path(os.fsdecode(os.fsencode(daemon.state) + b"/caf\xe9.4194000.tmp"))
    half.write_bytes(b"half")
    os.utime(half, (OLD, OLD))
    for dry_run in (True, False):
        answer = daemon.call("daemon/gc", dry_run=dry_run)
        assert items(answer, daemon)["temporary"] == {f"{daemon.state}/caf�.4194000.tmp"}
    assert not half.exists()


def test_a_closed_session_whose_files_somebody_removed_can_be_deleted(serve: Serve) -> None:
    daemon = serve()
    session = closed(daemon)
    shutil.rmtree(session.dir)
    session.call("delete")
    assert not daemon.call("session/list", state="closed")["sessions"]


def test_a_session_whose_files_cannot_be_looked_at_is_left_and_keeps_no_other(serve: Serve) -> None:
    daemon = serve()
    damaged, other = closed(daemon, days=40), closed(daemon, days=40)
    shutil.rmtree(damaged.dir / "journal")
    (damaged.dir / "journal").write_bytes(b"no directory")
    assert items(daemon.call("daemon/gc"), daemon)["session"] == {str(other.dir)}
    daemon.configure(raw="[daemon.retention]\ndays = 30\nevery_s = 0.05\n")
    third = closed(daemon, days=40)
    daemon.call("daemon/reload")
    until(lambda: not third.dir.exists())
    assert damaged.dir.exists()


def test_what_a_killed_keeper_had_reserved_for_its_last_record_is_removed(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt("a word\n@stall")
    session.await_event("content_delta")
    (reserved,) = (session.dir / "runs" / "1").glob("exit.json.*.tmp")
    os.kill(int(reserved.name.split(".")[2]), signal.SIGKILL)
    session.end_of("t1")
    os.utime(reserved, (OLD, OLD))
    answer = daemon.call("daemon/gc")
    assert str(reserved) in items(answer, daemon)["temporary"] and not reserved.exists()
