"""Text of others on its way to a terminal."""

from __future__ import annotations

import unicodedata

import pytest

from clisup.policy.secrets.plain_text import plain

JOINERS = {"\u200c", "\u200d"}


def test_no_control_direction_or_invisible_character_reaches_a_terminal() -> None:
    for code in range(0x110000):
        char = chr(code)
        kind = unicodedata.category(char)
        if kind in ("Cc", "Zl", "Zp") or (kind == "Cf" and char not in JOINERS and plain(char) != char):
            assert plain(char) == ("\ufffd" if char not in "\t\n" else char), hex(code)
        if unicodedata.bidirectional(char) in ("RLE", "LRE", "RLO", "LRO", "PDF", "RLI", "LRI", "FSI", "PDI"):
            assert plain(char) == "\ufffd", hex(code)


@pytest.mark.parametrize(
    "hidden", ["\u200b", "\u2060", "\ufeff", "\u00ad", "\u200f", "\u061c", "\U000e0041", "\x9b", "\x1b", "\x08"]
)
def test_what_hides_or_turns_the_text_is_seen(hidden: str) -> None:
    assert plain(f"a{hidden}b") == "a\ufffdb"


@pytest.mark.parametrize(
    "text",
    [
        "family: \U0001f468\u200d\U0001f469",
        "\u0646\u0645\u06cc\u200c\u062e",
        "a\tb\nc",
        "\u05e9\u05dc\u05d5\u05dd",
        "e\u0301",
    ],
)
def test_scripts_and_emoji_stay_as_they_are(text: str) -> None:
    assert plain(text) == text
