"""The socket: framing, several requests at once, and clients that are slow, broken, hostile or gone."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from harness import Harness, until
from wire import Hangup

from clisup.config.model import DaemonConfig
from clisup.daemon.clients.server import Server
from clisup.daemon.metrics import Metrics
from clisup.errors import ClisupError


def _kind(frame: dict[str, object]) -> str:
    return str(frame["error"]["data"]["kind"])  # type: ignore[index]


@pytest.mark.fault(46)
def test_what_is_no_request_is_refused_and_the_connection_goes_on(daemon: Harness) -> None:
    bad = [b"{nonsense\n", b"[]\n", b'{"jsonrpc":"2.0","id":true,"method":"ping"}\n', b"\xef\xbb\xbf{}\n",
           b'{"id":1,"method":"ping","params":{"a":NaN}}\n', b'{"id":1,"id":2,"method":"ping"}\n',
           b'{"id":1,"method":"ping","params":{"a":"\\ud800"}}\n', b'{"id":' + b"[" * 100_000 + b"\n"]  # fmt: skip
    with daemon.wire() as wire:
        for frame in bad:
            wire.send(frame)
            assert _kind(wire.frame()) in ("parse_error", "invalid_request"), frame[:40]
        wire.send(b"\n \n")
        assert wire.call("ping")["time"]
        for params in ([], {"surplus": 1}):
            wire.send({"id": "x", "method": "ping", "params": params})
            assert _kind(wire.frame()) == "invalid_params"
        with pytest.raises(ClisupError) as refused:
            wire.call("session/nothing")
        assert refused.value.kind == "method_not_found"


def test_one_line_without_introduction_is_enough(daemon: Harness) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(30)
        sock.connect(daemon.socket)
        sock.sendall(b'{"id":1,"method":"ping"}\n')
        sock.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert json.loads(answer)["result"]["time"]


@pytest.mark.fault(52)
def test_a_half_closed_client_still_gets_its_answer(daemon: Harness) -> None:
    session = daemon.new()
    with daemon.wire() as wire:
        request = wire.post("session/prompt", session_id=session.id, prompt="@sleep 0.3\nlate", wait=True)
        wire.socket.shutdown(socket.SHUT_WR)
        assert wire.answer(request)["text"] == "late"
        with pytest.raises(Hangup):
            wire.frame()


def test_an_id_in_flight_is_refused(daemon: Harness, tmp_path: Path) -> None:
    session = daemon.new()
    with daemon.wire() as wire:
        params = {"session_id": session.id, "prompt": f"@wait-file {tmp_path}/go", "wait": True}
        wire.send({"id": "same", "method": "session/prompt", "params": params})
        wire.send({"id": "same", "method": "ping"})
        assert _kind(wire.frame()) == "invalid_request"
        (tmp_path / "go").touch()
        assert wire.answer("same")["outcome"] == "completed"


def test_cancelling_a_wait_does_not_cancel_its_turn(daemon: Harness, tmp_path: Path) -> None:
    session = daemon.new()
    with daemon.wire() as wire:
        wait = wire.post("session/prompt", session_id=session.id, prompt=f"@wait-file {tmp_path}/go\ndone", wait=True)
        session.await_event("session_init")
        wire.send({"method": "$/cancel_request", "params": {"id": wait}})
        with pytest.raises(ClisupError) as cancelled:
            wire.answer(wait)
    assert cancelled.value.kind == "request_cancelled"
    (tmp_path / "go").touch()
    assert session.end_of("t1")["text"] == "done"


def test_a_prompt_cancelled_while_it_is_accepted_runs_or_never_was(daemon: Harness) -> None:
    for _ in range(8):
        session = daemon.new()
        with daemon.wire() as wire:
            request = {"id": 1, "method": "session/prompt", "params": {"session_id": session.id, "prompt": "hi"}}
            cancel = {"method": "$/cancel_request", "params": {"id": 1}}
            wire.send(json.dumps(request).encode() + b"\n" + json.dumps(cancel).encode() + b"\n")
            wire.frame()
        if session.events("prompt_accepted"):
            assert session.end_of("t1")["outcome"] == "completed"


@pytest.mark.fault(45)
def test_an_oversized_frame_closes_only_its_connection(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"max_frame_bytes": 4096})
    with daemon.wire() as good, daemon.wire() as bad:
        bad.send(b'{"id":1,"method":"ping","params":{"x":"' + b"y" * 5000)
        assert _kind(bad.frame()) == "invalid_request"
        with pytest.raises(Hangup):
            bad.frame()
        assert good.call("initialize")["limits"]["max_frame_bytes"] == 4096


@pytest.mark.fault(45)
def test_a_frame_of_millions_of_values_is_refused_unread_and_its_connection_goes_on(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve()
    with daemon.wire() as wire:
        wire.send(b'{"id":1,"method":"ping","params":{"x":[' + b"[]," * 5_000_000 + b"0]}}\n")
        refused = wire.frame()
        assert (refused["id"], _kind(refused)) == (1, "invalid_request")
        assert refused["error"]["data"]["limit"] == "max_frame_values"
        peak_kb = int(Path(f"/proc/{daemon.pid}/status").read_text().partition("VmHWM:")[2].split()[0])
        assert peak_kb < 250_000  # the values would be 0.3 GB
        assert wire.call("initialize")["limits"]["max_frame_values"] == 100_000


@pytest.mark.fault(44)
@pytest.mark.parametrize("drip", [False, True])
def test_half_a_frame_has_a_deadline_however_it_drips(serve: Callable[..., Harness], drip: bool) -> None:
    daemon = serve(daemon={"frame_deadline_s": 0.5})
    with daemon.wire() as good, daemon.wire() as bad:
        bad.send(b'{"id":1,"method":"ping","params":{"x":"')
        bad.socket.settimeout(0.1)
        end = time.monotonic() + 20
        while True:
            assert time.monotonic() < end, "a dripping client is held for ever"
            try:
                assert _kind(bad.frame()) == "invalid_request"
                break
            except TimeoutError:
                if drip:
                    bad.send(b"z")
        assert good.call("ping")


def test_subscribing_again_gives_each_event_once(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("one")
    stored = len(session.events())
    with daemon.wire() as wire:
        first = wire.post("session/subscribe", session_id=session.id, after_seq=0)
        second = wire.post("session/subscribe", session_id=session.id, after_seq=0)
        wrong = wire.post("session/subscribe", session_id=session.id, after_seq=10**6)
        assert wire.answer(first) and wire.answer(second)["next_seq"] == stored + 1
        with pytest.raises(ClisupError):
            wire.answer(wrong)
        session.ask("two")
        events = wire.events_until("turn_completed", turns=2)
        wire.call("ping")
    seqs = [event["seq"] for event in events] + [frame["params"]["seq"] for frame in wire.pushed]
    tail = seqs[-seqs[::-1].index(1) - 1 :]  # what the first subscription had sent already may come once more
    assert tail == list(range(1, max(seqs) + 1)) and seqs.count(max(seqs)) == 1


TRICKS = {
    "plain": "{connect}",
    "connected by a child that is gone": "pid = os.fork()\nif pid == 0:\n    {connect}\n    os._exit(0)\nos.waitpid(pid, 0)",
    "nested 300 deep": "for _ in range(300):\n    if pid := os.fork():\n        os._exit(os.waitpid(pid, 0)[1])\n{connect}",
    "undumpable": "import ctypes\nctypes.CDLL(None).prctl(4, 0, 0, 0, 0)\n{connect}",
}


@pytest.mark.fault(42)
@pytest.mark.parametrize("trick", TRICKS)
def test_a_tool_of_a_cli_may_not_speak(daemon: Harness, tmp_path: Path, trick: str) -> None:
    script = tmp_path / "speak.py"
    connect = TRICKS[trick].format(connect=f"s.connect({daemon.socket!r})")
    script.write_text(
        f"import os, socket\ns = socket.socket(socket.AF_UNIX)\ns.settimeout(20)\n{connect}\n"
        'try:\n    s.sendall(b\'{"id":1,"method":"session/list"}\\n\')\nexcept BrokenPipeError:\n    pass\n'
        "print(s.recv(65536).decode(), flush=True)\n"
    )
    session = daemon.new()
    session.ask(f"@bash {sys.executable} -I -S {script} 2>&1")
    assert "permission_denied" in session.events("tool_result")[0]["content"]


@pytest.mark.fault(42)
def test_what_was_kept_after_its_cli_and_keeper_may_not_speak_either(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve(demo={"orphans": "keep"})
    session = daemon.new()
    script = tmp_path / "kept.py"
    script.write_text(
        "import os, socket, time\n"
        f"while not os.path.exists({str(tmp_path / 'go')!r}):\n    time.sleep(0.01)\n"
        f"s = socket.socket(socket.AF_UNIX)\ns.settimeout(20)\ns.connect({daemon.socket!r})\n"
        'try:\n    s.sendall(b\'{"id":1,"method":"session/list"}\\n\')\nexcept BrokenPipeError:\n    pass\n'
        f"open({str(tmp_path / 'new')!r}, 'wb').write(s.recv(65536))\n"
        f"os.rename({str(tmp_path / 'new')!r}, {str(tmp_path / 'heard')!r})\n"
    )
    session.ask(f"@bash setsid {sys.executable} -I -S {script} </dev/null >/dev/null 2>&1 &")
    (exited,) = session.events("process_exited")
    assert exited["kept"]
    until(lambda: session.get()["keeper_pid"] is None)
    (tmp_path / "go").touch()
    until((tmp_path / "heard").exists)
    assert b"permission_denied" in (tmp_path / "heard").read_bytes()


@pytest.mark.parametrize("failing", ["peer_of", "Connection"])
async def test_a_failure_of_one_connection_ends_that_connection_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    def fail(*_of: object, **_named: object) -> None:
        monkeypatch.undo()
        raise RuntimeError("a fault of the daemon")

    monkeypatch.setattr(f"clisup.daemon.clients.server.{failing}", fail)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(Server(DaemonConfig(), {}, set, Metrics()).serve, listener)
            with trio.fail_after(60):
                async with await trio.open_unix_socket(str(tmp_path / "s")) as unlucky:
                    assert await unlucky.receive_some() == b""
                async with await trio.open_unix_socket(str(tmp_path / "s")) as next_one:
                    await next_one.send_all(b'{"id":1,"method":"nothing"}\n')
                    assert b"method_not_found" in await next_one.receive_some()
            nursery.cancel_scope.cancel()
