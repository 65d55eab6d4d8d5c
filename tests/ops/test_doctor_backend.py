"""What is wrong with a backend, and what to do: rules on facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clisup.ops.doctor import Finding
from clisup.ops.doctor_backend import BACKEND_CHECKS, BackendFacts, check_backend
from clisup.ops.drift import DriftEntry
from clisup.policy.environment.scrub import EnvReport, Pair, Stamp
from clisup.policy.vendor_terms import TERMS, TERMS_DATE

PAIR = Pair("API_URL", ("API_KEY", "API_TOKEN"), "x", 1, "why", "where")
GOOD = BackendFacts(
    name="mine",
    lists="x",
    kind="demo",
    served=False,
    path="/bin/x",
    version="2.0",
    supported=">=1",
    login=True,
    login_asked="x login status",
    argv=("/bin/x", "-p"),
    environment=EnvReport((("PATH", "r"),), (), ()),
    pairs=(PAIR,),
    stamps=(Stamp("x.allow", "x 2.0", "2026-11-20"),),
)


def finding(check: str, **facts: object) -> Finding:
    (found,) = [one for one in check_backend(replace(GOOD, **facts)) if one.check == check]  # type: ignore[arg-type]
    return found


def test_a_good_backend_has_every_check_in_order_and_all_of_them_ok() -> None:
    found = check_backend(GOOD)
    assert [one.check for one in found] == [name for name, _ in BACKEND_CHECKS]
    assert {(one.status, one.fix, one.backend) for one in found} == {("ok", "", "mine")}


@pytest.mark.parametrize(("optional", "status"), [(True, "warn"), (False, "fail")])
def test_a_backend_that_is_not_installed_fails_only_where_somebody_wants_it(optional: bool, status: str) -> None:
    absent = replace(GOOD, path=None, optional=optional, problem={"executable": ("no such command", "install it")})
    assert check_backend(absent) == [Finding("executable", status, "no such command", "install it", "mine")]  # type: ignore[arg-type]


@pytest.mark.parametrize("check", ["version", "argv"])
def test_what_keeps_it_from_being_started_fails_with_its_way_out(check: str) -> None:
    found = finding(check, problem={check: ("too old", "update")})
    assert (found.status, found.detail, found.fix) == ("fail", "too old", "update")


def test_a_cli_that_cannot_tell_whether_it_is_logged_in_is_no_reason_to_worry() -> None:
    assert finding("login", login=None, login_asked="").status == "ok"
    assert "cannot tell" in finding("login", login=None).detail


def test_a_missing_login_names_the_key_that_is_there_and_held_back() -> None:
    held = EnvReport((), (("API_KEY", "x.scrub:API_KEY"), ("UNHEARD_OF", "unlisted")), ())
    found = finding("login", login=False, environment=held)
    assert found.status == "fail"
    assert "API_KEY is in the daemon's environment, but held back" in found.fix
    assert "UNHEARD_OF" not in found.fix


def test_a_key_of_another_cli_is_none_that_is_held_back() -> None:
    held = EnvReport((), (("API_KEY", "x.scrub:API_KEY"), ("API_TOKEN", "x.scrub:API_*"), ("API_URL", "x")), ())
    assert "API_TOKEN, API_URL is in" in finding("login", login=False, environment=held, keys=("API_TOKEN",)).fix
    assert "held back" not in finding("login", login=False, environment=held, keys=()).fix


def test_a_missing_login_only_warns_where_something_else_may_stand_in_for_it() -> None:
    found = finding("login", login=False, login_elsewhere="a provider of its own")
    assert found.status == "warn" and "a provider of its own" in found.detail and found.fix


def test_a_key_that_is_held_back_and_set_on_purpose_is_none_that_is_held_back() -> None:
    both = EnvReport((), (("API_KEY", "x.scrub:API_KEY"),), (("API_KEY", "env"),))
    assert "held back" not in finding("environment", environment=both).detail
    closed = EnvReport((), (("API_KEY", "x.scrub:API_KEY"),), (("API_KEY", "backend"),))
    assert "held back" in finding("environment", environment=closed).detail


def test_an_endpoint_without_its_key_is_a_warning() -> None:
    lonely = EnvReport((), (), (("API_URL", "env"),))
    assert finding("environment", environment=lonely).status == "warn"
    closed = EnvReport((), (), (("API_URL", "backend"),))  # what the adapter sets, empty or not, is its own affair
    assert finding("environment", environment=closed).status == "ok"
    together = EnvReport((), (), (("API_TOKEN", "env"), ("API_URL", "env")))
    assert finding("environment", environment=together).status == "ok"


def test_a_name_in_pass_env_that_the_daemon_does_not_have_is_a_warning() -> None:
    assert "SSH_AUTH_SOCK" in finding("environment", pass_env=("SSH_AUTH_SOCK", "MY_*")).detail
    there = finding("environment", pass_env=("SSH_AUTH_SOCK",), inherited=frozenset({"SSH_AUTH_SOCK"}))
    assert there.status == "ok"


def test_what_root_may_not_do_warns_and_fails_where_the_configuration_asks_for_it() -> None:
    refused = ("bypassPermissions", "--yolo")
    assert finding("root", refused_as_root=refused).status == "ok"
    assert finding("root", root=True).status == "ok"
    assert finding("root", root=True, refused_as_root=refused).status == "warn"
    asked = finding("root", root=True, refused_as_root=refused, args=("--yolo",))
    assert asked.status == "fail" and "--yolo" in asked.detail and "bypassPermissions" not in asked.detail


def test_lists_that_are_older_than_the_cli_warn_until_its_names_were_looked_at() -> None:
    newer = finding("scrub lists", version="2.0.1")
    assert newer.status == "warn" and newer.fix.endswith("clisup doctor --drift mine")
    assert finding("scrub lists", version="2.0.1", names_checked="2.0").status == "warn"
    assert finding("scrub lists", version="2.0.1", names_checked="2.0.1").status == "ok"
    assert finding("scrub lists", version="1.9").status == "ok"


def test_lists_that_do_not_say_what_they_were_checked_with_are_a_warning() -> None:
    assert finding("scrub lists", stamps=()).status == "warn"


def test_drift_names_what_is_unknown_and_says_what_to_do() -> None:
    entry = DriftEntry("x", "2.0", "t", "t", frames={f"frame{n}": 1 for n in range(7)}, fields={"a: b": 2})
    found = finding("drift", drift=(entry,))
    assert found.status == "warn"
    assert "2.0: frames frame0, frame1, frame2, frame3, frame4 and 2 more, fields a: b" in found.detail
    assert "update clisup" in found.fix


@pytest.mark.parametrize(("allowed", "word"), [(True, "serves"), (False, "refuses")])
def test_a_backend_behind_the_gateway_that_may_use_a_subscription_names_what_its_vendor_says(
    allowed: bool, word: str
) -> None:
    found = finding("gateway", kind="claude", served=allowed, keys=("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"))
    assert found.status == "warn" and f"clisup gateway {word} it" in found.detail
    assert TERMS["claude"].page in found.detail and TERMS["claude"].words in found.detail and TERMS_DATE in found.detail


def test_a_key_makes_a_backend_fit_for_the_gateway_and_a_token_of_a_subscription_does_not() -> None:
    keys = ("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN")
    by_key = EnvReport((), (), (("ANTHROPIC_API_KEY", "config"),))
    by_token = EnvReport((("CLAUDE_CODE_OAUTH_TOKEN", "pass_env"),), (), ())
    assert finding("gateway", kind="claude", keys=keys, environment=by_key).status == "ok"
    assert finding("gateway", kind="claude", keys=keys, environment=by_token).status == "warn"


def test_a_backend_that_no_gateway_serves_has_no_finding_about_it() -> None:
    assert "gateway" not in [one.check for one in check_backend(replace(GOOD, served=None))]
