"""`daemon/restart`: another daemon in the same process, while turns run and clients wait."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, children_of, until
from wire import PATIENCE_S, Wire

from clisup.client.sync import Client
from clisup.errors import ClisupError
from tests.fakecli import COMMAND

OTHER = f'[backends.other]\nkind = "demo"\ncommand = {json.dumps(COMMAND)}\n'
pytestmark = pytest.mark.cold  # the first daemon, like its successors, is one that was executed


def connected(daemon: Harness) -> Wire:
    """A connection, also where others knock faster than the daemon accepts: what the kernel keeps for it may be full."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            return daemon.wire()
        except BlockingIOError:
            assert time.monotonic() < end, "no place in the backlog"
            time.sleep(0.005)


def restart(daemon: Harness) -> dict[str, Any]:
    """Restart it and wait for the new one; gives the answer."""
    with connected(daemon) as wire:
        before = wire.call("initialize")["server"]["instance_id"]
        answer = wire.call("daemon/restart")
    assert answer["instance_id"] == before
    daemon.await_successor(before)
    return dict(answer)


def test_turns_go_on_and_followers_see_each_seq_once(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    sessions = [daemon.new() for _ in range(4)]
    with Client.connect(daemon.socket) as client, client.follow(sessions[0].id, after_seq=0) as follower:
        for session in sessions:
            parts = [f"@stream 200 40 0.001\n@wait-file {tmp_path}/{n}" for n in range(2)]
            session.prompt("\n".join([*parts, "@stream 100", "@exit 7"]))
        pids = [session.cli() for session in sessions]
        pid = daemon.pid
        for n in range(2):
            assert restart(daemon)["running"] == 4
            (tmp_path / str(n)).touch()
        followed = [next(follower)]
        while followed[-1]["type"] != "turn_completed":
            followed.append(next(follower))
    assert daemon.identity()["pid"] == pid and daemon.process is not None and daemon.process.poll() is None
    for session, cli in zip(sessions, pids, strict=True):
        session.end_of("t1")
        assert session.chunks() == [*range(200), *range(200), *range(100)]
        assert [e["pid"] for e in session.events("process_started")] == [cli]
        assert [e["exit_code"] for e in session.events("process_exited")] == [7]
    assert followed == sessions[0].events()


def test_keepers_of_the_daemon_before_leave_no_zombie(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@wait-file {tmp_path}/go\nbye")
    session.cli()
    restart(daemon)
    (tmp_path / "go").touch()
    session.end_of("t1")
    until(lambda: set(children_of(daemon.pid)) <= {daemon.keeper_zygote()})


def test_who_connects_in_between_is_served_and_nobody_else_gets_the_socket(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    refused: list[BaseException] = []
    stop = threading.Event()

    def knock() -> None:
        while not stop.is_set():
            try:
                Wire(daemon.socket).close()
            except BlockingIOError:
                continue  # more wait than the kernel keeps for us
            except OSError as error:
                refused.append(error)

    thread = threading.Thread(target=knock)
    thread.start()
    try:
        restart(daemon)
        second = daemon.launch()
        assert second.wait(40) == 75  # one daemon for each state directory, all the time
    finally:
        stop.set()
        thread.join()
    assert not refused


def test_a_configuration_that_would_not_start_changes_nothing(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt(f"@wait-file {tmp_path}/go\nbye")
    before = daemon.identity()
    good = daemon.config.read_text()
    daemon.config.write_text(good + "\n[demon]\n")
    with pytest.raises(ClisupError) as refused:
        daemon.call("daemon/restart")
    assert refused.value.kind == "configuration" and "'demon'" in refused.value.message
    assert "\n" not in refused.value.message and "hint:" not in f"{refused.value.message}{refused.value.hint}"
    assert "goes on as it is" in refused.value.hint
    assert daemon.identity() == before
    daemon.config.write_text(good)
    (tmp_path / "go").touch()
    assert session.end_of("t1")["outcome"] == "completed"


def test_a_restart_that_would_leave_a_running_turn_without_its_backend_is_refused(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve(raw=OTHER)
    session = daemon.new(backend="other")
    session.prompt(f"@wait-file {tmp_path}/go\ndone")
    session.cli()
    daemon.configure()
    with pytest.raises(ClisupError) as refused:
        daemon.call("daemon/restart")
    assert refused.value.kind == "session_busy" and "cannot restart: backend 'other'" in refused.value.message
    (tmp_path / "go").touch()
    assert session.end_of("t1")["text"] == "done"


@pytest.mark.fault(1)
def test_a_turn_whose_backend_is_gone_after_a_crash_goes_on_and_is_adopted_when_the_backend_is_back(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve(raw=OTHER)
    session = daemon.new(backend="other")
    session.prompt(f"@wait-file {tmp_path}/go\ndone")
    cli = session.cli()
    daemon.kill()
    daemon.configure()
    daemon.start()
    assert session.id in daemon.call("daemon/status")["damaged_sessions"]
    assert Path(f"/proc/{cli}").exists()
    daemon.configure(raw=OTHER)
    daemon.call("daemon/reload")
    until(lambda: not daemon.call("daemon/status")["damaged_sessions"])
    (tmp_path / "go").touch()
    assert (session.end_of("t1")["outcome"], session.end_of("t1")["text"]) == ("completed", "done")
    assert [event["pid"] for event in session.events("process_started")] == [cli]


def test_a_stop_ends_the_turn_of_a_session_whose_backend_is_not_configured(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve(raw=OTHER)
    session = daemon.new(backend="other")
    session.prompt(f"@wait-file {tmp_path}/go\ndone")
    cli = session.cli()
    daemon.kill()
    daemon.configure()
    daemon.start()
    daemon.stop()
    until(lambda: not Path(f"/proc/{cli}").exists())


@pytest.mark.parametrize("where", ["state", "."])
def test_a_place_that_others_can_change_by_now_refuses_the_restart_and_ends_no_daemon(
    serve: Callable[..., Harness], where: str
) -> None:
    daemon = serve()
    before = daemon.identity()
    (daemon.root / where).chmod(0o777)
    with pytest.raises(ClisupError, match="others may write to") as refused:
        daemon.call("daemon/restart")
    assert refused.value.kind == "configuration" and "chmod go-w" in refused.value.hint
    assert daemon.identity() == before
    (daemon.root / where).chmod(0o700)
    daemon.call("daemon/restart")
    daemon.await_successor(before["instance_id"])


def test_a_changed_configuration_is_in_force_afterwards(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_frame_bytes": 100_000})
    with daemon.wire() as wire:
        assert wire.call("initialize")["limits"]["max_frame_bytes"] == 100_000
    daemon.configure(daemon={"max_frame_bytes": 200_000})
    restart(daemon)
    with daemon.wire() as wire:
        assert wire.call("initialize")["limits"]["max_frame_bytes"] == 200_000


def test_the_environment_survives_and_stays_hidden(serve: Callable[..., Harness]) -> None:
    daemon = serve(env={"CANARY_TOKEN": "canary-4711", "LC_NAME": "C.UTF-8"})
    before = {e["name"] for e in daemon.call("backend/env", name="demo")["dropped"]}
    restart(daemon)
    assert {e["name"] for e in daemon.call("backend/env", name="demo")["dropped"]} == before >= {"CANARY_TOKEN"}
    assert b"canary-4711" not in Path(f"/proc/{daemon.pid}/environ").read_bytes()


def test_a_prompt_with_a_key_across_a_restart_runs_once(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve()
    sessions = [daemon.new() for _ in range(6)]
    text = f"@bash echo ran >> {tmp_path}/ran-$CLISUP_SESSION\nbye"
    for session in sessions:
        session.prompt(text, key="k")
    restart(daemon)
    for session in sessions:
        assert session.call("prompt", prompt=text, key="k")["delivery"] == "duplicate"
        assert session.end_of("t1")["outcome"] == "completed"
        assert (tmp_path / f"ran-{session.id}").read_text() == "ran\n"


def test_a_daemon_that_dies_at_its_restart_is_started_as_after_any_crash(serve: Callable[..., Harness]) -> None:
    daemon = serve(env={"CLISUP_FAILPOINTS": "restart.before=kill"})
    session = daemon.new()
    session.prompt("@stream 300 40 0.003")
    session.cli()
    with daemon.wire() as wire:
        wire.call("daemon/restart")
    assert daemon.process is not None and daemon.process.wait(40) == -signal.SIGKILL
    daemon._hang_up()
    daemon.start()
    session.end_of("t1")
    assert session.chunks() == list(range(300))


def test_a_stop_after_a_restart_ends_all_as_ever(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"on_stop": "kill"})
    session = daemon.new()
    session.prompt("@sleep 300")
    session.cli()
    restart(daemon)
    assert daemon.stop() == 0
    assert not session.processes() and not os.path.exists(daemon.socket)
