"""Push messages of `clisup web`: what they say, which addresses are accepted, and what a push service may answer."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from push_service import PushService

from clisup.errors import ConfigurationError
from clisup.web.access.tokens import MOST_TOKENS, TokenBook
from clisup.web.push import delivery
from clisup.web.push.delivery import PAUSES_S, PushSender, contact_of, push_key
from clisup.web.push.messages import ENDPOINT_CHARS, PushAddress, push_address, push_message

ASKED = {"type": "approval_requested", "session_id": "s", "approval_id": "1:a/b", "tool_name": "Bash",
         "input": {"command": "git push"}, "reason": "because"}  # fmt: skip


def fields(**changed: str) -> dict[str, str]:
    return {"endpoint": "https://push.example/1", "p256dh": "B" + "A" * 86, "auth": "A" * 22, **changed}


def taken(sent: dict[str, str]) -> PushAddress:
    return push_address(lambda name: sent.get(name, ""))


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PushService]:
    made = PushService(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(made.certificate))
    monkeypatch.setattr(delivery, "PRIVATE_HOSTS", True)
    monkeypatch.setattr(delivery, "PAUSES_S", (0.0, 0.0))
    yield made
    made.close()


@pytest.fixture
def sender(tmp_path: Path) -> PushSender:
    return PushSender(push_key(str(tmp_path / "web")), "mailto:test@example.com")


# -- messages


def test_a_message_has_the_title_and_the_link_and_no_text_of_the_command() -> None:
    message = push_message(ASKED, "Fix the build")
    assert message is not None and message.path == "/approvals/s/1%3Aa%2Fb"
    text = message.encode().decode()
    assert "Fix the build" in text and "git push" not in text and "because" not in text


@pytest.mark.parametrize(
    ("outcome", "told"), [("failed", True), ("timed_out", True), ("completed", False), ("interrupted", False)]
)
def test_a_turn_is_told_if_it_failed(outcome: str, told: bool) -> None:
    event = {"type": "turn_completed", "session_id": "s", "outcome": outcome, "text": "secret"}
    message = push_message(event, None)
    assert (message is not None) is told
    assert message is None or (message.path == "/sessions/s" and b"secret" not in message.encode())


@given(st.text(), st.text())
def test_every_title_and_id_makes_a_message_that_is_small(title: str, id_: str) -> None:
    message = push_message({**ASKED, "approval_id": id_[:100]}, title)
    assert message is not None and len(message.encode()) < 3900 and message.path.startswith("/approvals/s/")
    assert json.loads(message.encode())["path"].isascii()


# -- addresses


@pytest.mark.parametrize(
    "changed",
    [
        {"endpoint": ""},
        {"endpoint": "http://push.example/1"},
        {"endpoint": "file:///etc/passwd"},
        {"endpoint": "javascript:alert(1)"},
        {"endpoint": "https://"},
        {"endpoint": "https://user:pw@push.example/1"},
        {"endpoint": "https://push.example:99999/1"},
        {"endpoint": "https://push.example:0/1"},
        {"endpoint": "https://[::1/1"},
        {"endpoint": "https://push.example/1\r\nX: y"},
        {"endpoint": "https://push.example/ 1"},
        {"endpoint": "https://pusch.ex\u00e4mple/1"},
        {"endpoint": "https://push.example/" + "x" * ENDPOINT_CHARS},
        {"p256dh": ""},
        {"p256dh": "A" * 10_000},
        {"auth": "A" * 21},
        {"auth": "<script>alert(1)</scri"},
    ],
)
def test_no_other_text_is_a_push_address(changed: dict[str, str]) -> None:
    assert taken(fields())
    with pytest.raises(ValueError):
        taken(fields(**changed))


@given(st.text(), st.text(), st.text())
def test_any_text_is_accepted_or_refused(endpoint: str, p256dh: str, auth: str) -> None:
    with pytest.raises(ValueError):
        taken({"endpoint": endpoint, "p256dh": p256dh, "auth": auth})


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "10.0.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "[::1]", "[fe80::1]",
     "[fd00::1]", "[::ffff:127.0.0.1]", "[2002:7f00:1::]", "224.0.0.1", "2130706433", "0x7f.1"],
)  # fmt: skip
async def test_no_message_goes_to_this_machine_or_a_private_network(
    host: str, service: PushService, sender: PushSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "PRIVATE_HOSTS", False)
    address = taken({**service.fields(), "endpoint": f"https://{host}:{service.port}/push/1"})
    with pytest.raises(ValueError):
        await sender.check(address)
    message = push_message(ASKED, None)
    assert message is not None
    try:
        assert await sender.send(address, message)
    except ValueError:
        assert ":" in host  # nobody can sign for an address of IPv6
    assert service.requests == []


async def test_keys_that_are_on_no_curve_are_refused(service: PushService, sender: PushSender) -> None:
    with pytest.raises(ValueError, match="not valid"):
        await sender.check(taken({**service.fields(), "p256dh": "B" + "A" * 86}))


# -- push services


async def test_the_browser_reads_what_was_sent(service: PushService, sender: PushSender) -> None:
    address, message = taken(service.fields()), push_message(ASKED, "Title \U0001f980")
    assert message is not None
    await sender.check(address)
    assert await sender.send(address, message)
    assert service.message(0) == {"title": "Title \U0001f980", "body": "Waits for your answer.",
                                  "path": "/approvals/s/1%3Aa%2Fb", "tag": "s/1:a/b"}  # fmt: skip


@pytest.mark.parametrize(
    ("answers", "known", "tries"),
    [
        ([404], False, 1),
        ([410], False, 1),
        ([503, 429, 201], True, 3),
        ([500] * 9, True, 1 + len(PAUSES_S)),
        ([503, 410], False, 2),
        ([403], True, 1),
        ([b"HTTP/1.1 302 Found\r\nLocation: https://localhost/other\r\n\r\n"], True, 1),
        ([b"220 mail ready\r\n"] * 3, True, 3),
        ([b""] * 3, True, 3),
        ([b"x" * 100_000] * 3, True, 3),
    ],
)
async def test_tries_are_bounded_and_an_unknown_address_is_told(
    answers: list[Any], known: bool, tries: int, service: PushService, sender: PushSender
) -> None:
    service._answers += answers
    message = push_message(ASKED, None)
    assert message is not None
    assert await sender.send(taken(service.fields()), message) is known
    assert len(service.requests) == tries


async def test_a_certificate_of_nobody_gets_no_message(
    service: PushService, sender: PushSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    message = push_message(ASKED, None)
    assert message is not None and await sender.send(taken(service.fields()), message)
    assert service.requests == []


# -- what is kept


def test_the_key_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    folder = str(tmp_path / "web")
    first = PushSender(push_key(folder), "").public_key
    assert first == PushSender(push_key(folder), "").public_key
    (file,) = os.listdir(folder)
    assert os.stat(os.path.join(folder, file)).st_mode & 0o777 == 0o600
    Path(folder, file).write_text("no key")
    with pytest.raises(ConfigurationError):
        push_key(folder)


def test_a_browser_has_one_address_that_goes_with_its_token(tmp_path: Path) -> None:
    book = TokenBook(str(tmp_path))
    tokens = []
    for number in range(MOST_TOKENS):
        found = book.redeem(book.add_link(f"b{number}", "observe"))
        assert found
        tokens.append(found[1].id)
    for token in tokens[:3]:
        for number in range(5):
            book.set_push_address(token, taken(fields(endpoint=f"https://push.example/{number}")))
    book.set_push_address("stranger", taken(fields()))
    assert set(TokenBook(str(tmp_path)).push_addresses()) == set(tokens[:3])
    book.revoke(tokens[0])
    book.set_push_address(tokens[1], None)
    assert set(book.push_addresses()) == {tokens[2]}
    assert tokens[0] not in Path(book.path).read_text()
    assert os.stat(book.path).st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("origin", "contact"),
    [
        ("https://box.example.ts.net", "https://box.example.ts.net"),
        ("https://box.example:8443", "https://box.example"),
        ("http://127.0.0.1:7777", "mailto:clisup@example.com"),
    ],
)
def test_the_contact_is_one_that_can_be_signed(origin: str, contact: str, tmp_path: Path) -> None:
    assert contact_of(origin) == contact
    assert push_key(str(tmp_path)).sign({"sub": contact, "aud": "https://push.example"})
