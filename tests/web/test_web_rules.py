"""Rules of `clisup web`: which requests are refused whoever sends them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clisup.http.addresses import Addresses, origin_of, place_of
from clisup.web.access.rules import ROLES, allows, form_token, refusal_of

HERE = place_of("127.0.0.1", 7777)
HOST = {"host": "127.0.0.1:7777"}
SAME = {**HOST, "origin": "http://127.0.0.1:7777", "sec-fetch-site": "same-origin"}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:7777", "127.0.0.1", "127.0.0.1:7778", "", "127.0.0.1:7777, evil.example"]
)
def test_a_name_that_only_resolves_to_this_machine_is_refused(host: str) -> None:
    assert refusal_of("GET", {"host": host}, HERE) == "unknown host"


@pytest.mark.parametrize("host", ["127.0.0.1:7777", "localhost:7777", "LOCALHOST:7777", "[::1]:7777"])
def test_the_names_of_this_machine_are_accepted(host: str) -> None:
    assert refusal_of("GET", {"host": host}, HERE) is None


@pytest.mark.parametrize(
    "headers",
    [
        {**SAME, "origin": "http://evil.example"},
        {**SAME, "origin": "http://127.0.0.1:9999"},  # same site, other port: SameSite would send the cookie
        {**SAME, "origin": "null"},
        {**SAME, "sec-fetch-site": "same-site"},
        {**SAME, "sec-fetch-site": "cross-site"},
        {**SAME, "sec-fetch-site": "none"},
    ],
)
def test_a_form_of_another_page_is_refused(headers: dict[str, str]) -> None:
    assert refusal_of("POST", SAME, HERE) is None
    assert refusal_of("POST", headers, HERE) == "foreign origin"


def test_a_form_without_any_origin_is_refused() -> None:
    assert refusal_of("POST", HOST, HERE) == "no origin"


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_another_site_may_link_to_a_page_and_may_not_frame_or_load_it(site: str) -> None:
    visit = {**HOST, "sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert refusal_of("GET", visit, HERE) is None
    assert refusal_of("GET", {**visit, "sec-fetch-dest": "iframe"}, HERE) == "foreign site"
    assert refusal_of("GET", {**visit, "sec-fetch-mode": "cors", "sec-fetch-dest": "empty"}, HERE) == "foreign site"
    assert refusal_of("GET", {**visit, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}, HERE) == "foreign site"


def test_the_address_behind_a_proxy_is_accepted_with_its_own_origin() -> None:
    place = place_of("127.0.0.1", 7777, "https://box.example.ts.net/")
    proxied = {"host": "box.example.ts.net", "origin": "https://box.example.ts.net", "sec-fetch-site": "same-origin"}
    assert refusal_of("POST", proxied, place) is None
    assert refusal_of("POST", {**proxied, "origin": "http://box.example.ts.net"}, place) == "foreign origin"
    assert place.is_secure("box.example.ts.net") and not place.is_secure("127.0.0.1:7777")


def test_an_address_for_all_networks_accepts_only_named_hosts() -> None:
    place = place_of("0.0.0.0", 443, "https://box.example", tls=True)
    assert place.hosts == {"localhost", "127.0.0.1", "[::1]", "box.example"}


@pytest.mark.parametrize("text", ["", "box", "ftp://box", "https://", "https://u:p@box", "javascript:alert(1)"])
def test_no_other_text_is_an_address(text: str) -> None:
    with pytest.raises(ValueError, match="no address"):
        origin_of(text)


def test_a_role_may_do_what_weaker_roles_may() -> None:
    assert [[allows(role, needed) for needed in ROLES] for role in ROLES] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]


@given(st.dictionaries(st.sampled_from(["host", "origin", "sec-fetch-site", "sec-fetch-mode", "sec-fetch-dest"]), st.text()),
       st.sampled_from(["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"]))  # fmt: skip
def test_a_request_that_changes_something_needs_the_host_and_an_own_origin(
    headers: dict[str, str], method: str
) -> None:
    place = Addresses(HERE.hosts, HERE.origins)
    if refusal_of(method, headers, place) is None:
        assert headers["host"].lower() in place.hosts
        if method not in ("GET", "HEAD"):
            assert headers.get("origin") in place.origins or headers.get("sec-fetch-site") == "same-origin"


def test_a_form_token_belongs_to_one_cookie_and_does_not_show_it() -> None:
    assert form_token("a") == form_token("a") != form_token("b")
    assert "secret" not in form_token("secret")
