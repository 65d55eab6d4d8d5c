"""Secrets in what a CLI wrote: known values first, then well-known shapes, and ordinary words stay."""

from __future__ import annotations

import pytest

from clisup.policy.secrets.redact import MASK, Redactor

CANARIES = [
    "sk-ant-" + "api03-AAAABBBBCCCCDDDD_eeee-ffff",
    "sk-" + "proj-0123456789abcdefABCDEF",
    "ghp_" + "0123456789abcdefghijABCDEFGHIJ012345",
    "gho_" + "0123456789abcdefghijABCDEFGHIJ012345",
    "xoxb-" + "123456789012-abcdefghijkl",
    "AKIA" + "ABCDEFGHIJKLMNOP",
    "AIza" + "0123456789abcdefghijklmnopqrstuvwxy",
    "eyJ" + "hbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "c2lnbmF0dXJl",
]
PLACES = ["{}", "key={}", '{{"apiKey":"{}"}}', "x: {}.", "https://host/?k={}&b=1", "\\n{} \\n", "({})", "{}\n{}"]


@pytest.mark.parametrize("canary", CANARIES)
@pytest.mark.parametrize("place", PLACES)
def test_a_well_known_shape_is_hidden_wherever_it_stands(canary: str, place: str) -> None:
    hidden = Redactor()(place.format(canary, canary))
    assert canary not in hidden
    assert "[redacted]" in hidden


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_a_bearer_token_of_any_make_is_hidden_and_its_scheme_stays(scheme: str) -> None:
    assert Redactor()(f"Authorization: {scheme} abc.DEF/123+456==") == f"Authorization: {scheme} [redacted]"


@pytest.mark.parametrize("place", PLACES)
def test_a_known_value_is_hidden_whatever_it_looks_like(place: str) -> None:
    secret = "correct horse battery"
    assert secret not in Redactor([secret])(place.format(secret, secret))


def test_a_secret_inside_another_leaves_no_rest_of_it() -> None:
    long, short = "prefix-hunter22-suffix", "hunter22"
    for values in ([long, short], [short, long]):
        assert Redactor(values)(f"{long} {short}") == "[redacted] [redacted]"


def test_a_value_too_short_to_be_a_secret_blanks_out_nothing() -> None:
    assert Redactor(["a", "", "root", "1234567"])("a root 1234567") == "a root 1234567"


@pytest.mark.parametrize(
    "text",
    [
        "task-0123456789abcdef0123 is done",
        "see disk-usage-of-all-machines.txt",
        "the ask-user-question-tool",
        "sk-short",
        "keyJar.object.method",
        "bearer of news",
        "",
    ],
)
def test_ordinary_words_stay(text: str) -> None:
    assert Redactor(["correct horse battery"])(text) == text


def test_a_redactor_has_no_string_form_of_its_values() -> None:
    redactor = Redactor(["correct horse battery"])
    assert "horse" not in f"{redactor!r} {redactor}"
    assert not hasattr(redactor, "__dict__")


def test_one_that_hides_what_either_hides() -> None:
    both = Redactor(["first-secret"]).also(Redactor(["other-secret"]))
    assert both("first-secret other-secret plain") == f"{MASK} {MASK} plain"
