"""kill -9 of the gateway and of the daemon in each phase of a request: the same POST again gives the same answer, from one run."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from gateway_kit import CHAT, MESSAGES, RESPONSES, Served
from harness import until

Start = Callable[..., Served]
KEY = "one-run"
ROUNDS = 12
TOOL: Any = {"type": "function", "function": {"name": "add", "description": "", "parameters": {"type": "object"}}}


class Asked:
    """A request under way, in a thread of its own."""

    def __init__(self, served: Served, path: str, body: dict[str, Any], **headers: str) -> None:
        self.result: Any = None
        self._thread = threading.Thread(target=self._send, args=(served, path, body, headers))
        self._thread.start()

    def _send(self, served: Served, path: str, body: dict[str, Any], headers: dict[str, str]) -> None:
        try:
            self.result = served.send("POST", path, body, **headers)
        except (OSError, ValueError, HTTPException) as error:  # the connection broke
            self.result = error

    def end(self) -> Any:
        self._thread.join(120)
        assert not self._thread.is_alive()
        return self.result


def runs(mark: Path) -> int:
    """How often the turn's command has run."""
    return len(mark.read_text().splitlines()) if mark.exists() else 0


def slow(served: Served) -> tuple[str, Path]:
    """A prompt whose turn marks that it runs, and waits in the middle until the file `go` is there."""
    mark, go = served.root / "mark", served.root / "go"
    wait = f"@bash echo run >> {mark}; while [ ! -e {go} ]; do sleep 0.05; done"
    return f"Before.\n{wait}\nAfter.", mark


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES])
@pytest.mark.parametrize("killed", ["gateway", "daemon", "both"])
def test_a_post_that_is_repeated_after_a_kill_runs_once(gateway: Start, path: str, killed: str) -> None:
    served = gateway()
    prompt, mark = slow(served)
    body: dict[str, Any] = {"model": "demo", "input": prompt} if path == RESPONSES else served.chat(prompt)
    body |= {"max_tokens": 9} if path == MESSAGES else {}
    first = Asked(served, path, body, Idempotency_Key=KEY)
    until(lambda: runs(mark) == 1)
    if killed != "gateway":
        served.daemon.kill()
    if killed != "daemon":
        served.kill()
        first.end()
    if killed != "gateway":
        served.daemon.start()
    if killed != "daemon":
        served.start()
    (served.root / "go").touch()
    second = served.send("POST", path, body, Idempotency_Key=KEY)
    assert second[0] == 200 and "After." in str(second[1])
    again = served.send("POST", path, body, Idempotency_Key=KEY)
    assert again[1] == second[1] and runs(mark) == 1
    if killed == "daemon":
        assert first.end()[1] == second[1]


def test_the_retries_of_an_sdk_survive_a_kill_and_run_once(gateway: Start) -> None:
    served = gateway()
    prompt, mark = slow(served)
    client = served.openai(max_retries=10)
    found: list[str | None] = []

    def ask() -> None:
        messages: Any = [{"role": "user", "content": prompt}]
        answer = client.chat.completions.create(model="demo", messages=messages, extra_headers={"Idempotency-Key": KEY})
        found.append(answer.choices[0].message.content)

    thread = threading.Thread(target=ask)
    thread.start()
    until(lambda: runs(mark) == 1)
    served.kill()
    served.start()
    (served.root / "go").touch()
    thread.join(120)
    assert found == ["Before.\n\nAfter."] and runs(mark) == 1


def test_posts_that_are_repeated_through_kills_at_random_run_once_each(gateway: Start) -> None:
    served = gateway()
    dice = random.Random(11)
    for number in range(ROUNDS):
        mark = served.root / f"mark-{number}"
        body = served.chat(f"@stream 10 13 0.02\n@bash echo run >> {mark}\n@stream 10 13 0.02", stream=number % 2 == 1)
        asked = Asked(served, CHAT, body, Idempotency_Key=f"key-{number}")
        time.sleep(dice.random() * 0.8)  # the moment of the kill, and no wait for anything
        victim = dice.choice(["gateway", "daemon"])
        if victim == "gateway":
            served.kill()
            asked.end()
            served.start()
        else:
            served.daemon.kill()
            served.daemon.start()
        again = served.send("POST", CHAT, body, Idempotency_Key=f"key-{number}")
        assert again[0] == 200, (number, again)
        assert str(again[1]).count("chunk 0000") == 20 and runs(mark) == 1, (number, victim)
        if victim == "daemon":
            assert asked.end()[1] == again[1], number


def test_an_answer_comes_again_after_its_session_was_closed_and_after_restarts_of_both(gateway: Start) -> None:
    served = gateway()
    first = served.send("POST", CHAT, served.chat("@stream 5"), Idempotency_Key=KEY)
    session = first[2]["x-clisup-session"]
    until(lambda: served.daemon.call("session/get", session_id=session)["state"] == "closed")
    served.kill()
    served.daemon.kill()
    served.daemon.start()
    served.start()
    again = served.send("POST", CHAT, served.chat("@stream 5"), Idempotency_Key=KEY)
    assert again[1] == first[1]
    stream = served.send("POST", CHAT, served.chat("@stream 5", stream=True), Idempotency_Key=KEY)
    assert stream[0] == 409 and stream[1]["error"]["code"] == "idempotency_key_reused"


def test_a_stream_comes_again_piece_by_piece(gateway: Start) -> None:
    served = gateway()
    body = served.chat("@stream 20", stream=True)
    first = served.send("POST", CHAT, body, Idempotency_Key=KEY)
    assert first[1].count("chunk 0000") == 20
    assert served.send("POST", CHAT, body, Idempotency_Key=KEY)[1] == first[1]


def test_a_failed_turn_fails_in_the_same_way_again(gateway: Start) -> None:
    served = gateway()
    answers = [served.send("POST", CHAT, served.chat("@error overloaded"), Idempotency_Key=KEY) for _ in range(2)]
    assert answers[0][:2] == answers[1][:2] and answers[0][0] == 503
    assert answers[0][2]["x-should-retry"] == "false" and answers[0][2].keys() == answers[1][2].keys()


def test_a_key_belongs_to_one_request(gateway: Start) -> None:
    served = gateway()
    assert served.send("POST", CHAT, served.chat("One."), Idempotency_Key=KEY)[0] == 200
    status, body, _ = served.send("POST", CHAT, served.chat("Two."), Idempotency_Key=KEY)
    assert (status, body["error"]["code"]) == (409, "idempotency_key_reused")
    assert served.send("POST", CHAT, served.chat("Two."), Idempotency_Key="another")[0] == 200


def test_a_conversation_that_goes_on_keeps_its_keys_apart(gateway: Start) -> None:
    served = gateway()
    first = served.send("POST", RESPONSES, {"model": "demo", "input": "One."}, Idempotency_Key="first")[1]
    body = {"model": "demo", "input": "@count", "previous_response_id": first["id"]}
    second = served.send("POST", RESPONSES, body, Idempotency_Key="second")
    assert "turn 2" in str(second[1]) and served.send("POST", RESPONSES, body, Idempotency_Key="second")[1] == second[1]
    named = [
        served.send("POST", CHAT, served.chat("@count"), Idempotency_Key=key, x_clisup_session="talk") for key in "aab"
    ]
    assert named[0][1] == named[1][1] and "turn 2" in str(named[2][1])
    for path, other, more in (
        (RESPONSES, {**body, "input": "Other."}, {}),
        (CHAT, served.chat("Other."), {"x_clisup_session": "talk"}),
    ):
        key = "second" if path == RESPONSES else "b"
        assert served.send("POST", path, other, Idempotency_Key=key, **more)[0] == 409


def test_a_daemon_that_stays_away_is_a_503_and_the_key_still_holds_afterwards(gateway: Start) -> None:
    served = gateway(before="import clisup.client.reconnect as r; r.RECONNECT_S = 1.0")
    prompt, mark = slow(served)
    asked = Asked(served, CHAT, served.chat(prompt), Idempotency_Key=KEY)
    until(lambda: runs(mark) == 1)
    served.daemon.kill()
    assert asked.end()[0] == 503
    assert served.send("POST", CHAT, served.chat("Hello."))[0] == 503
    (served.root / "go").touch()
    served.daemon.start()
    again = served.send("POST", CHAT, served.chat(prompt), Idempotency_Key=KEY)
    assert again[0] == 200 and runs(mark) == 1 and "fault" not in served.log()


def test_two_posts_at_once_with_one_key_share_the_turn(gateway: Start) -> None:
    served = gateway()
    prompt, mark = slow(served)
    asked = [Asked(served, CHAT, served.chat(prompt), Idempotency_Key=KEY) for _ in range(2)]
    until(lambda: runs(mark) == 1)
    (served.root / "go").touch()
    first, second = (one.end() for one in asked)
    assert first[0] == 200 and first[1] == second[1] and runs(mark) == 1


@pytest.mark.parametrize("killed", ["gateway", "daemon"])
def test_results_of_tools_reach_the_waiting_turn_after_a_kill(gateway: Start, killed: str) -> None:
    served = gateway()
    messages: list[Any] = [{"role": "user", "content": 'Look.\n@mcp add {"a": 1}\n@mcp add {"a": 2}\nDone.'}]
    body: dict[str, Any] = {"model": "demo", "tools": [TOOL], "messages": messages}
    for number in (1, 2):
        said = served.send("POST", CHAT, body)[1]["choices"][0]
        assert said["finish_reason"] == "tool_calls"
        if killed == "gateway":
            served.kill()
            served.start()
        else:
            served.daemon.kill()
            served.daemon.start()
        (call,) = said["message"]["tool_calls"]
        messages += [said["message"], {"role": "tool", "tool_call_id": call["id"], "content": str(number)}]
    ended = served.send("POST", CHAT, body)
    assert ended[1]["choices"][0]["message"]["content"] == "Done."
    assert served.send("POST", CHAT, body)[1] == ended[1]


def test_a_killed_gateway_leaves_nothing_behind_that_the_next_one_does_not_end(gateway: Start) -> None:
    served = gateway()
    prompt, mark = slow(served)
    one = Asked(served, CHAT, served.chat(prompt))
    until(lambda: runs(mark) == 1)
    served.kill()
    one.end()
    served.start()
    until(lambda: not any(served.daemon.call("session/list", state=state)["sessions"] for state in (None, "closed")))


def test_a_turn_without_results_ends_after_the_time_for_them(gateway: Start) -> None:
    served = gateway(tool_timeout_s=1.0)
    body = {**served.chat('@mcp add {"a": 1}\nDone.'), "tools": [TOOL]}
    session = served.send("POST", CHAT, body)[2]["x-clisup-session"]
    until(lambda: served.daemon.call("session/get", session_id=session)["state"] == "closed")


def test_kept_answers_go_after_their_time(gateway: Start) -> None:
    served = gateway(keep_s=1.0, before="import clisup.doors.gateway.sessions as s; s.SWEEP_S = 0.2")
    assert served.send("POST", CHAT, served.chat("Hello."), Idempotency_Key=KEY)[0] == 200
    assert served.send("POST", RESPONSES, {"model": "demo", "input": "Hello."})[0] == 200
    until(lambda: not any(served.daemon.call("session/list", state=state)["sessions"] for state in (None, "closed")))
