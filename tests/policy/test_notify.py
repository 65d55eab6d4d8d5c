"""Messages about events: which event is told under which name, what a service gets, and how a request is signed."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from clisup.policy.notify import (
    MAX_BODY,
    MAX_WAIT_S,
    NOTICED,
    NotifyMessage,
    Subject,
    kind_of,
    message_of,
    next_wait,
    request_of,
    sample,
    signature,
    signing_key,
)

ALL = ("approval_requested", "turn_failed", "turn_completed", "limit")
ABOUT = Subject("5e5510", "claude", "opus", "/home/me/app", {"team": "web"})


def event(type_: str, **fields: Any) -> dict[str, Any]:
    return {
        "session_id": "5e5510",
        "seq": 17,
        "ts": "2026-11-24T12:00:00.000000Z",
        "turn_id": "t1",
        "type": type_,
        **fields,
    }


def ended(outcome: str, kind: str | None = None, **fields: Any) -> dict[str, Any]:
    error = {"error": {"kind": kind, "message": "it broke"}} if kind else {}
    return event("turn_completed", outcome=outcome, **error, **fields)


ASKED = event("approval_requested", approval_id="1:0", tool_name="Bash", input={"command": "git push"})


@pytest.mark.parametrize(
    ("told", "on", "kind"),
    [
        (ASKED, ALL, "approval_requested"),
        (ASKED, ["turn_failed"], None),
        (ended("failed", "crashed"), ALL, "turn_failed"),
        (ended("timed_out", "idle_timeout"), ["turn_failed"], "turn_failed"),
        (ended("failed", "crashed"), ["turn_completed"], "turn_completed"),
        (ended("interrupted"), ALL, "turn_completed"),
        (ended("interrupted"), ["turn_failed"], None),
        (ended("failed", "rate_limit"), ["limit", "turn_completed"], "limit"),
        (ended("failed", "quota_exceeded"), ALL, "turn_failed"),
        (event("rate_limit", status="allowed_warning"), ALL, None),
        (event("rate_limit", status="rejected"), ALL, "limit"),
        (event("notice", code="held", message="the turn is held"), ["limit"], "limit"),
        (event("notice", code="adopted"), ALL, None),
        (event("message"), ALL, None),
    ],
)
def test_an_event_is_told_under_one_of_the_names_that_a_table_has(
    told: dict[str, Any], on: list[str], kind: str | None
) -> None:
    assert kind_of(told, on) == kind
    assert kind is None or told["type"] in NOTICED


def test_a_message_names_its_session_and_has_one_id_for_its_event() -> None:
    message = message_of(ASKED, "approval_requested", ABOUT)
    assert (message.id, message.type, message.timestamp) == ("5e5510_17", "approval_requested", ASKED["ts"])
    assert message.line == "claude in app: asks to use Bash"
    body = json.loads(message.to_json())
    assert (body["id"], body["message"], body["data"]["seq"], body["data"]["link"]) == (
        message.id,
        message.line,
        17,
        None,
    )
    assert body["data"]["event"] == {
        "type": "approval_requested", "approval_id": "1:0", "tool_name": "Bash", "input": {"command": "git push"}
    }  # fmt: skip
    assert body["data"]["labels"] == {"team": "web"}
    titled = message_of(ASKED, "approval_requested", msgspec.structs.replace(ABOUT, title="Mend the tests"))
    assert titled.line == 'claude in app "Mend the tests": asks to use Bash'


@pytest.mark.parametrize(
    ("told", "kind", "words"),
    [
        (ended("failed", "crashed"), "turn_failed", "turn failed (crashed): it broke"),
        (ended("timed_out"), "turn_failed", "turn timed out"),
        (ended("completed", text="All\n tests\x1b pass."), "turn_completed", "turn completed: All tests pass."),
        (
            event("rate_limit", status="rejected", resets_at="2026"),
            "limit",
            "limit of the account is reached until 2026",
        ),
        (event("notice", code="held", message="the turn is held"), "limit", "the turn is held"),
    ],
)
def test_the_line_for_a_person_says_what_has_happened(told: dict[str, Any], kind: str, words: str) -> None:
    assert message_of(told, kind, ABOUT).line.endswith(words)


def test_texts_are_cut_and_a_body_that_is_still_too_long_has_no_event() -> None:
    deep: Any = "x"
    for _ in range(50):
        deep = {"a": [deep]}
    message = message_of(ASKED | {"input": {"command": "x" * 10_000, "deep": deep}}, "approval_requested", ABOUT)
    assert len(json.loads(message.to_json())["data"]["event"]["input"]["command"]) == 2000
    wide = {f"{at}": {str(n): "y" * 5000 for n in range(60)} for at in range(60)}
    body = message_of(ASKED | {"input": wide}, "approval_requested", ABOUT).to_json()
    assert len(body) < MAX_BODY
    assert json.loads(body)["data"]["event"] is None and json.loads(body)["data"]["cut"] is True
    assert len(message_of(ended("completed", text="z" * 9000), "turn_completed", ABOUT).line) == 200


def test_half_a_surrogate_pair_is_written() -> None:
    json.loads(message_of(ended("completed", text="\ud800"), "turn_completed", ABOUT).to_json())


def test_each_service_gets_its_form() -> None:
    urgent = NotifyMessage("i", "turn_failed", "t", "a < b & <c>", {})
    assert json.loads(request_of(urgent, "slack").body) == {"text": "a &lt; b &amp; &lt;c&gt;"}
    gotify = json.loads(request_of(urgent, "gotify").body)
    assert gotify == {"title": "clisup: turn failed", "message": "a < b & <c>", "priority": 8}
    ntfy = request_of(urgent, "ntfy")
    assert (ntfy.body, ntfy.headers["Title"], ntfy.headers["Priority"]) == (
        b"a < b & <c>",
        "clisup: turn failed",
        "high",
    )
    assert request_of(sample("test_1", "t"), "ntfy").headers["Priority"] == "default"
    assert json.loads(request_of(urgent, "json").body)["type"] == "turn_failed"


def test_a_signature_is_that_of_the_example_of_standard_webhooks() -> None:
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    headers = signature(key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers == {
        "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
        "webhook-timestamp": "1614265330",
        "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    }


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_c2hvcnQ=", "no base64 at all!", "whsec_" + "A" * 100])
def test_a_secret_that_is_none_is_refused_without_a_word_of_it(secret: str) -> None:
    with pytest.raises(ValueError, match="24 to 64 bytes") as refused:
        signing_key(secret)
    assert len(secret) < 8 or secret not in str(refused.value)


def test_waits_double_up_to_a_limit_and_a_server_may_ask_for_more() -> None:
    assert [next_wait(tried) for tried in (1, 2, 3, 9, 10, 5000)] == [1, 2, 4, 256, MAX_WAIT_S, MAX_WAIT_S]
    assert next_wait(1, 30) == 30 and next_wait(1, 1e9) == MAX_WAIT_S and next_wait(5, 1) == 16


def test_a_message_links_to_the_page_of_the_approval_or_the_session_in_every_form() -> None:
    asked = message_of(ASKED | {"approval_id": "1:a/é"}, "approval_requested", ABOUT, "https://box.example")
    link = f"https://box.example/approvals/{ABOUT.session_id}/1:a%2F%C3%A9"
    assert asked.data["link"] == link
    assert request_of(asked, "ntfy").headers["Click"] == link
    assert json.loads(request_of(asked, "slack").body)["text"].endswith(f" <{link}>")
    assert json.loads(request_of(asked, "gotify").body)["extras"]["client::notification"]["click"]["url"] == link
    done = message_of(ended("completed", text="x"), "turn_completed", ABOUT, "https://box.example")
    assert done.data["link"] == f"https://box.example/sessions/{ABOUT.session_id}"
    assert "Click" not in request_of(message_of(ASKED, "approval_requested", ABOUT), "ntfy").headers
