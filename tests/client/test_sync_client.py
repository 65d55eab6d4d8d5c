"""The blocking client against a daemon that does as it is told."""

from __future__ import annotations

import base64
import errno
import json
import socket
import subprocess
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from fake_daemon import SESSION, SILENCE, FakeDaemon, Peer

from clisup.client import raw, reconnect, sync
from clisup.client.failures import ConnectionLost, cannot_connect
from clisup.client.raw import RawClient
from clisup.client.sync import Client
from clisup.errors import ClisupError, UsageError


def test_it_says_its_name_before_the_first_call(daemon: FakeDaemon) -> None:
    with Client.connect(daemon.path, name="mine") as client:
        client.call("ping")
        assert client.server["backends"] == ["demo"]
    assert [name for name, _ in daemon.requests] == ["initialize", "ping"]
    assert daemon.calls("initialize")[0]["client"]["name"] == "mine"


def test_params_and_results_travel_unchanged(daemon: FakeDaemon) -> None:
    daemon.handlers["echo"] = lambda peer, params: params
    given = {"text": 'é "quoted" \n \U0001f600', "deep": [{"a": None, "b": 1.5, "c": True}], "empty": {}}
    with Client.connect(daemon.path) as client:
        assert client.call("echo", **given) == given


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("half \ud83d of it", "half of a surrogate pair"),
        (float("nan"), "Out of range float"),
        (Path("/tmp"), "PosixPath is not JSON"),
    ],
    ids=["surrogate", "nan", "path"],
)
def test_what_is_no_json_is_refused_before_it_is_sent(daemon: FakeDaemon, wrong: object, why: str) -> None:
    daemon.handlers["echo"] = lambda peer, params: params
    with Client.connect(daemon.path) as client:
        with pytest.raises(UsageError, match=f"cannot send echo, .*{why}"):
            client.call("echo", value=wrong)
        assert client.call("echo", value="\ud83d\ude00") == {"value": "\U0001f600"}
    assert len(daemon.calls("echo")) == 1


def test_a_refusal_keeps_its_kind_its_hint_and_its_fields(daemon: FakeDaemon) -> None:
    def busy(peer: Peer, params: dict[str, Any]) -> Any:
        raise UsageError("cannot prompt", kind="session_busy", hint="wait", queue_position=2)

    daemon.handlers["session/prompt"] = busy
    with Client.connect(daemon.path) as client, pytest.raises(ClisupError) as caught:
        client.call("session/prompt", session_id=SESSION, prompt="x")
    assert (caught.value.kind, caught.value.hint, caught.value.exit_code) == ("session_busy", "wait", 75)
    assert caught.value.data["queue_position"] == 2


def test_a_refusal_at_the_door_is_told(daemon: FakeDaemon) -> None:
    def refuse(peer: Peer, params: dict[str, Any]) -> Any:
        error = UsageError("cannot serve uid 7", kind="permission_denied").to_wire()
        peer.send({"jsonrpc": "2.0", "id": None, "error": error})
        return SILENCE

    daemon.handlers["initialize"] = refuse
    with pytest.raises(ClisupError, match="uid 7") as caught:
        Client.connect(daemon.path)
    assert caught.value.exit_code == 77


def test_a_daemon_that_hung_up_before_it_was_spoken_to_is_heard_all_the_same(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "s.sock"))
        door.listen()
        connection = RawClient(str(tmp_path / "s.sock"), "test")
        connection.dial()
        with door.accept()[0] as peer:
            error = UsageError("cannot serve uid 7", kind="permission_denied").to_wire()
            peer.sendall(b'{"method":"x"}\n' + json.dumps({"id": None, "error": error}).encode() + b"\n")
        with pytest.raises(ClisupError, match="uid 7") as caught:
            connection.post("ping")
        assert caught.value.kind == "permission_denied"
        assert connection.lost
        connection.close()


def test_a_daemon_that_hung_up_without_a_word_is_lost(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(tmp_path / "s.sock"))
        door.listen()
        connection = RawClient(str(tmp_path / "s.sock"), "test")
        connection.dial()
        with door.accept()[0] as peer:
            peer.sendall(b'{"method":"x"}\nhalf a li')
        with pytest.raises(ConnectionLost):
            connection.post("ping")
        connection.close()


def test_a_missing_socket_says_how_to_start(tmp_path: Path) -> None:
    with pytest.raises(ClisupError) as caught:
        Client.connect(str(tmp_path / "none.sock"))
    assert caught.value.message == f"cannot reach the daemon at {tmp_path}/none.sock, because nothing listens there"
    assert (caught.value.hint, caught.value.exit_code) == ("start it: clisup start", 3)


def test_a_stale_socket_is_told_from_a_missing_one(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "s.sock"))
    with pytest.raises(ClisupError, match="left the socket behind") as caught:
        Client.connect(str(tmp_path / "s.sock"))
    assert caught.value.exit_code == 3


def test_a_file_that_is_no_socket_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClisupError, match="not a socket"):
        Client.connect(str(tmp_path / "file"))


def test_a_forbidden_socket_names_its_owner(tmp_path: Path) -> None:
    error = cannot_connect(str(tmp_path), PermissionError(errno.EACCES, "Permission denied"))
    assert "it belongs to uid" in error.message
    assert (error.kind, error.exit_code) == ("permission_denied", 77)


def test_a_path_too_long_for_a_socket_is_refused_with_its_length(tmp_path: Path) -> None:
    path = "/tmp/" + "é" * 60
    with pytest.raises(ClisupError, match="125 bytes and a Unix socket takes 107") as caught:
        Client.connect(path)
    assert caught.value.exit_code == 78


def test_a_daemon_that_never_answers_does_not_hold_the_caller(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "ANSWER_TIMEOUT_S", 0.05)
    daemon.handlers["daemon/status"] = lambda peer, params: SILENCE
    with Client.connect(daemon.path) as client, pytest.raises(ClisupError, match="daemon/status") as caught:
        client.call("daemon/status")
    assert caught.value.kind == "overloaded"


def test_a_long_silence_is_borne_as_long_as_pings_are_answered(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(raw, "QUIET_S", 0.02)

    def ping(peer: Peer, params: dict[str, Any]) -> Any:
        if len(daemon.calls("ping")) == 3:
            daemon.emit("notice", code="late", message="at last")
        return {"time": ""}

    daemon.handlers["ping"] = ping
    with Client.connect(daemon.path) as client:
        assert next(client.subscribe(SESSION))["code"] == "late"
    assert len(daemon.calls("ping")) >= 3


def test_a_silence_without_answers_to_pings_ends(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon.handlers["ping"] = lambda peer, params: SILENCE
    with Client.connect(daemon.path) as client:
        events = client.subscribe(SESSION)
        monkeypatch.setattr(raw, "QUIET_S", 0.02)
        monkeypatch.setattr(raw, "ANSWER_TIMEOUT_S", 0.02)
        with pytest.raises(ClisupError, match="ping"):
            next(events)


def test_something_else_behind_the_socket_is_told(daemon: FakeDaemon) -> None:
    def shout(peer: Peer, params: dict[str, Any]) -> Any:
        peer.send(b"HTTP/1.1 400 Bad Request\n")
        return SILENCE

    daemon.handlers["initialize"] = shout
    with pytest.raises(ClisupError, match="not JSON-RPC"):
        Client.connect(daemon.path)


@pytest.mark.parametrize("line", [b"", b"[1]", b'{"a":', b'{"a":1} x', b"\xff", b'{"a":' * 5000, b"[" * 5000])
def test_a_line_that_is_not_one_object_is_no_frame(line: bytes) -> None:
    with pytest.raises(ValueError):
        raw.decode(line)


def test_a_line_without_an_end_is_bounded(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "LINE_LIMIT", 1000)

    def flood(peer: Peer, params: dict[str, Any]) -> Any:
        peer.send(b"x" * 5000)
        return SILENCE

    daemon.handlers["ping"] = flood
    with Client.connect(daemon.path) as client, pytest.raises(ClisupError, match="1000 bytes"):
        client.call("ping")


def test_events_that_overtake_an_answer_are_kept_in_order(daemon: FakeDaemon) -> None:
    def prompt(peer: Peer, params: dict[str, Any]) -> Any:
        for text in "abc":
            daemon.emit("content_delta", kind="text", text=text)
        return {"turn_id": "t1"}

    daemon.handlers["session/prompt"] = prompt
    with Client.connect(daemon.path) as client:
        events = client.subscribe(SESSION, 0)
        assert client.call("session/prompt", session_id=SESSION, prompt="x") == {"turn_id": "t1"}
        assert [event["text"] for event in islice(events, 3)] == ["a", "b", "c"]


def test_after_a_call_that_was_interrupted_in_its_sending_the_next_one_connects_again(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        """A socket whose `sendall` Ctrl-C ends: nobody knows how much of the line is there."""

        def __init__(self, inner: Any) -> None:
            self.settimeout, self.close, self.recv = inner.settimeout, inner.close, inner.recv
            self._ways = iter([self._interrupted])
            self._whole = inner.sendall

        def sendall(self, line: bytes) -> None:
            next(self._ways, self._whole)(line)

        def _interrupted(self, line: bytes) -> None:
            raise KeyboardInterrupt

    with Client.connect(daemon.path) as client:
        monkeypatch.setattr(client, "_socket", Interrupted(client._socket))
        with pytest.raises(KeyboardInterrupt):
            client.call("ping")
        assert client.call("ping")["time"]
    assert len(daemon.calls("initialize")) == 2


def test_a_blob_is_put_together_from_its_pages(daemon: FakeDaemon) -> None:
    whole = b"0123456789" * 1000

    def page(peer: Peer, params: dict[str, Any]) -> Any:
        part = whole[params["offset"] :][:4096]
        end = params["offset"] + len(part)
        return {"data_base64": base64.b64encode(part).decode(), "size": len(whole), "eof": end == len(whole)}

    daemon.handlers["session/blob"] = page
    with Client.connect(daemon.path) as client:
        assert client.blob(SESSION, "blob-1-out-9-0") == whole


def test_following_gives_each_seq_once_across_a_restart(daemon: FakeDaemon) -> None:
    said: list[str] = []
    for n in range(3):
        daemon.emit("notice", code=str(n), message="")

    def came_back() -> None:
        said.append("back")

    def lost() -> None:
        said.append("lost")
        for n in range(3, 6):
            daemon.emit("notice", code=str(n), message="")
        daemon.start()

    with Client.connect(daemon.path) as client, client.follow(SESSION, 0, on_lost=lost, on_back=came_back) as events:
        seen = [event["seq"] for event in islice(events, 3)]
        daemon.stop()
        seen += [event["seq"] for event in islice(events, 3)]
    assert seen == [1, 2, 3, 4, 5, 6]
    assert said == ["lost", "back"]
    assert [params["after_seq"] for params in daemon.calls("session/subscribe")] == [0, 3]


def test_following_from_now_on_misses_nothing_of_a_restart(daemon: FakeDaemon) -> None:
    daemon.emit("notice", code="before", message="")
    with Client.connect(daemon.path) as client, client.follow(SESSION, on_lost=daemon.start) as events:
        daemon.stop()
        daemon.emit("notice", code="between", message="")
        assert next(events)["code"] == "between"


def test_an_event_that_is_sent_twice_is_given_once(daemon: FakeDaemon) -> None:
    with Client.connect(daemon.path) as client, client.follow(SESSION, 0) as events:
        daemon.emit("notice", code="a", message="")
        daemon.peers[-1].event(daemon.events[0])
        daemon.emit("notice", code="b", message="")
        assert [event["code"] for event in islice(events, 2)] == ["a", "b"]


def test_removed_history_is_told_and_moves_the_cursor(daemon: FakeDaemon) -> None:
    with Client.connect(daemon.path) as client, client.follow(SESSION, 0) as events:
        gap = {"session_id": SESSION, "from_seq": 1, "to_seq": 7, "reason": "retention"}
        daemon.peers[-1].send({"jsonrpc": "2.0", "method": "session/gap", "params": gap})
        assert next(events) == {"type": "gap", **gap}
        assert events.cursor == 7


def test_following_gives_up_when_the_daemon_stays_away(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect, "RECONNECT_S", 0.05)
    monkeypatch.setattr(reconnect, "RETRY_PAUSE_S", 0.01)
    with Client.connect(daemon.path) as client, client.follow(SESSION, 0) as events:
        daemon.stop()
        with pytest.raises(ClisupError, match="did not come back within") as caught:
            next(events)
    assert caught.value.exit_code == 3


def test_a_plain_subscription_ends_with_its_connection(daemon: FakeDaemon) -> None:
    with Client.connect(daemon.path) as client:
        events = client.subscribe(SESSION, 0)
        daemon.stop()
        with pytest.raises(ConnectionLost):
            next(events)


def test_the_client_loads_no_heavy_module() -> None:
    heavy = ("click", "rich", "trio", "pydantic", "argparse", "subprocess", "asyncio", "uuid")
    code = f"import sys, clisup.client.sync; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True,
                          cwd=Path(sync.__file__).parents[2])  # fmt: skip
    assert done.stdout.strip() == "[]"
