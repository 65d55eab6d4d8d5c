"""Tokens of browsers: links work once, files hold no secret, and a revoked token is refused at once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from clisup.errors import UsageError
from clisup.web.access.tokens import LINK_S, MOST_LINKS, MOST_TOKENS, TOKEN_S, TokenBook


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def book(tmp_path: Path, clock: Clock) -> TokenBook:
    return TokenBook(str(tmp_path / "web"), clock)


def signed_in(book: TokenBook, name: str = "phone") -> str:
    found = book.redeem(book.add_link(name, "approve"))
    assert found is not None
    return found[0]


def test_a_link_signs_one_browser_in_with_its_name_and_role(book: TokenBook) -> None:
    code = book.add_link("phone", "approve")
    found = book.redeem(code)
    assert found is not None
    token = book.check(found[0])
    assert token is not None and (token.name, token.role) == ("phone", "approve")
    assert book.redeem(code) is None
    assert book.redeem("guess") is None and book.check("guess") is None and book.check(code) is None


def test_links_and_tokens_end(book: TokenBook, clock: Clock) -> None:
    code, secret = book.add_link("late", "observe"), signed_in(book)
    clock.now += LINK_S + 1
    assert book.redeem(code) is None
    assert book.check(secret)
    clock.now += TOKEN_S
    assert book.check(secret) is None and book.tokens() == []


def test_a_revoked_token_is_refused_by_every_process_at_once(book: TokenBook, tmp_path: Path, clock: Clock) -> None:
    secret = signed_in(book)
    other = TokenBook(str(tmp_path / "web"), clock)
    (token,) = other.tokens()
    assert other.revoke(token.id) == token and other.revoke(token.id) is None
    assert book.check(secret) is None


def test_the_file_has_hashes_alone_and_only_its_owner_reads_it(book: TokenBook) -> None:
    code, secret = book.add_link("phone", "drive"), signed_in(book)
    text = Path(book.path).read_text()
    assert code not in text and secret not in text and "phone" in text
    assert os.stat(book.path).st_mode & 0o777 == 0o600
    assert os.stat(os.path.dirname(book.path)).st_mode & 0o777 == 0o700


def test_links_and_tokens_are_bounded(book: TokenBook) -> None:
    first = book.add_link("first", "observe")
    for _ in range(MOST_LINKS):
        book.add_link("more", "observe")
    assert book.redeem(first) is None
    for _ in range(MOST_TOKENS):
        signed_in(book)
    with pytest.raises(UsageError) as caught:
        signed_in(book)
    assert caught.value.kind == "overloaded"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"tokens": {"x": {"role": "root"}}}', '{"tokens": {"x": 1}}', "\0"])
def test_a_damaged_file_signs_everybody_out(book: TokenBook, text: str) -> None:
    secret = signed_in(book)
    Path(book.path).write_text(text)
    assert book.check(secret) is None and book.tokens() == []
    assert book.check(signed_in(book))


def test_a_role_cannot_be_raised_by_an_unknown_word(book: TokenBook) -> None:
    secret = signed_in(book)
    stored = json.loads(Path(book.path).read_text())
    next(iter(stored["tokens"].values()))["role"] = "admin"
    Path(book.path).write_text(json.dumps(stored))
    assert book.check(secret) is None
