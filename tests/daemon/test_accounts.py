"""Rate limits are an account's: what one session is told holds the others, visibly, and only as long as needed."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harness import Harness, until
from recorder_in_memory import GoodDisk

from clisup.config.model import parse_config
from clisup.daemon.limits import accounts as module
from clisup.daemon.limits.accounts import ACCOUNTS_MAX, Account, Accounts
from clisup.errors import ClisupError
from clisup.model.events import RateLimit
from clisup.policy.rate_limit import SAME_S, AccountLimit


def account(daemon: Harness, name: str = "demo") -> dict[str, Any]:
    return next(row for row in daemon.call("daemon/status")["accounts"] if row["account"] == name)


def use_up(daemon: Harness, seconds: float = 3600, **session: Any) -> None:
    end = daemon.new(**session).ask(f"@limit {seconds}")
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "quota_exceeded")
    assert seconds - 60 < end["error"]["retry_after_s"] <= seconds


def test_a_limit_of_one_session_holds_the_new_turns_of_the_others_in_a_line(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    use_up(daemon)
    first, second = daemon.new(), daemon.new()
    answers = [session.call("prompt", prompt="hello") for session in (first, second)]
    until(lambda: len(account(daemon)["waiting"]) == 2)
    assert account(daemon)["waiting"] == [first.id, second.id]
    assert [(a["delivery"], a["held"]["account"]) for a in answers] == [("queued", "demo")] * 2
    assert [session.get()["held"]["position"] for session in (first, second)] == [1, 2]
    assert "held until 2" in first.await_event("notice", code="held")["message"]
    assert not first.events("turn_started")
    assert first.call("interrupt")["outcome"] == "interrupted"  # a held turn can be taken back
    until(lambda: account(daemon)["waiting"] == [second.id])
    assert second.get()["held"]["position"] == 1
    second.call("close")
    until(lambda: account(daemon)["waiting"] == [])


def test_a_client_that_does_not_want_to_wait_is_refused_with_the_time(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    use_up(daemon)
    session = daemon.new()
    with pytest.raises(ClisupError) as refused:
        session.prompt("hello", when_limited="refuse")
    assert (refused.value.kind, refused.value.data["account"]) == ("rate_limited", "demo")
    assert 3000 < refused.value.data["retry_after_s"] <= 3600
    assert not session.events("prompt_accepted")


def test_a_prompt_that_was_to_be_refused_and_meets_the_limit_in_its_queue_ends_then(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve()
    session = daemon.new()
    session.prompt("@wait-file go\n@limit 3600")
    waiting = session.prompt("second", when_limited="refuse")
    (daemon.cwd / "go").touch()
    end = session.end_of(waiting)
    assert (end["outcome"], end["error"]["kind"], end["error"]["retryable"]) == ("failed", "rate_limit", True)
    assert end["error"]["retry_after_s"] > 3000 and end["error"]["resets_at"].endswith("Z")


def test_after_the_end_one_turn_tries_and_its_answer_frees_the_others(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    use_up(daemon, 2)
    sessions = [daemon.new() for _ in range(3)]
    probe, *others = sessions
    turns = [probe.prompt("@wait-file go\nan answer"), *(session.prompt("hello") for session in others)]
    until(lambda: probe.events("turn_started"))  # by itself, when the two seconds are over
    assert account(daemon)["probe"] == probe.id
    assert not any(session.events("turn_started") for session in others)
    assert others[0].get()["held"] | {"position": 0} == {
        "account": "demo", "until": None, "retry_after_s": None, "position": 0,
    }  # fmt: skip
    (daemon.cwd / "go").touch()
    assert {session.end_of(turn)["outcome"] for session, turn in zip(sessions, turns, strict=True)} == {"completed"}
    assert account(daemon)["state"] == "ok"


def test_a_try_that_meets_the_limit_again_holds_the_others_further(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    use_up(daemon, 1)
    probe, other = daemon.new(), daemon.new()
    turn = probe.prompt("@limit 3600")
    other.prompt("hello")
    assert probe.end_of(turn)["error"]["kind"] == "quota_exceeded"
    until(lambda: ((other.get()["held"] or {}).get("retry_after_s") or 0) > 3000)
    assert not other.events("turn_started")


def test_a_limit_is_known_to_the_next_daemon(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    use_up(daemon)
    daemon.restart()
    session = daemon.new()
    assert session.call("prompt", prompt="hello")["held"]["account"] == "demo"
    daemon.restart()
    until(lambda: session.get()["held"])  # a held turn stays held
    assert not session.events("turn_started")


def test_a_broken_file_of_accounts_only_makes_the_daemon_ask_again(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    use_up(daemon)
    (daemon.state / "accounts.json").write_text('{"limits": {"demo": {"state": 7}}, "salt": []}')
    daemon.restart()
    assert daemon.new().ask("hello")["outcome"] == "completed"


def test_sessions_with_credentials_of_their_own_have_accounts_of_their_own(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"request_env": ["ANTHROPIC_API_KEY"]})
    use_up(daemon, env={"ANTHROPIC_API_KEY": "sk-one"})
    assert daemon.new().ask("hello")["outcome"] == "completed"
    assert daemon.new(env={"ANTHROPIC_API_KEY": "sk-two"}).ask("hello")["outcome"] == "completed"
    held = daemon.new(env={"ANTHROPIC_API_KEY": "sk-one"}).call("prompt", prompt="hello")["held"]
    assert held["account"].startswith("demo#")
    status = daemon.call("daemon/status")
    assert "sk-" not in str(status["accounts"]) and "sk-" not in (daemon.state / "accounts.json").read_text()


def test_holding_can_be_switched_off(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"limit_hold_s": 0})
    use_up(daemon)
    assert account(daemon)["state"] == "limited"
    assert daemon.new().ask("hello")["outcome"] == "completed"


def test_a_warning_holds_nobody(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    frame = '{"type":"rate_limit_event","rate_limit_info":{"status":"allowed_warning","utilization":0.9,"resetsAt":%d}}'
    daemon.new().ask(f"@raw {frame % (time.time() + 3600)}\nfine")
    assert (account(daemon)["state"], account(daemon)["utilization"]) == ("warned", 0.9)
    assert daemon.new().ask("hello")["outcome"] == "completed"


def book(state_dir: Path) -> Accounts:
    return Accounts(str(state_dir), cast("Any", GoodDisk()), parse_config({"daemon": {"limit_hold_s": 3600}}))


def of_token(accounts: Accounts, number: int) -> Account:
    """The account of a session whose client brought this token."""
    backend = SimpleNamespace(config=SimpleNamespace(kind="claude", env={}, account=""))
    return accounts.account_of(cast("Any", backend), {"ANTHROPIC_AUTH_TOKEN": f"token {number}"})


def test_accounts_that_no_session_uses_any_more_take_no_room(tmp_path: Path) -> None:
    accounts = book(tmp_path)
    used = of_token(accounts, 0)
    used.observe(RateLimit(status="allowed"))
    for number in range(1, 20):
        of_token(accounts, number).observe(RateLimit(status="rejected"))
    assert [row["account"] for row in accounts.describe()] == [used.name]
    assert of_token(accounts, 0) is used
    assert of_token(accounts, 7).limit.state == "limited"  # what was heard of it is not forgotten


@pytest.mark.fault(78)
def test_a_flood_of_the_same_limit_is_stored_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[Any] = []
    monkeypatch.setattr(module, "write_json", lambda *args, **_: stored.append(args))
    used = of_token(book(tmp_path), 0)
    for _ in range(100):
        used.observe(*[RateLimit(status="allowed_warning", utilization=0.9)] * 100)
    assert len(stored) == 1
    used.observe(*[RateLimit(status="allowed", utilization=number / 100) for number in range(100)])
    assert len(stored) == 2 and used.limit.utilization == 0.99


def test_a_limit_that_is_told_again_much_later_is_stored_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "clock", SimpleNamespace(wall=lambda: now))
    used = of_token(book(tmp_path), 0)
    used.observe(RateLimit(status="rejected"))
    now += SAME_S - 1
    used.observe(RateLimit(status="rejected"))
    assert used.limit.said_at == 1000
    now += 1
    used.observe(RateLimit(status="rejected"))
    assert used.limit.said_at == of_token(book(tmp_path), 0).limit.said_at == 1000 + SAME_S


def test_the_account_of_a_deleted_session_is_told_of_no_more(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"request_env": ["MY_TOKEN"]})
    use_up(daemon, env={"MY_TOKEN": "one"})
    (row,) = daemon.call("daemon/status")["accounts"]
    assert row["state"] == "limited"
    (session,) = daemon.call("session/list")["sessions"]
    daemon.call("session/close", session_id=session["session_id"])
    daemon.call("session/delete", session_id=session["session_id"])
    assert daemon.call("daemon/status")["accounts"] == []


def test_of_too_many_accounts_the_one_heard_of_longest_ago_is_forgotten(tmp_path: Path) -> None:
    accounts = book(tmp_path)
    used = [of_token(accounts, number) for number in range(ACCOUNTS_MAX + 1)]
    for account in (*used[:ACCOUNTS_MAX], used[0], used[ACCOUNTS_MAX]):
        account.observe(RateLimit(status="rejected"))
    again = book(tmp_path)
    assert [of_token(again, number).limit.state for number in (0, 1, 2)] == ["limited", "unknown", "limited"]


def test_a_file_of_limits_that_somebody_changed_ends_no_daemon(tmp_path: Path) -> None:
    (tmp_path / "accounts.json").write_text('{"version": 1, "salt": [], "limits": [1]}')
    assert of_token(book(tmp_path), 0).limit.state == "unknown"


# -- accounts that the configuration names, which a fleet shares -------------------------------------------------------


def shared(daemon: Harness) -> dict[str, Any]:
    (row,) = daemon.call("account/list")["accounts"]
    return cast("dict[str, Any]", row)


def test_backends_with_one_account_share_its_limit_and_the_other_accounts_are_not_listed(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(demo={"account": "team-max-1", "request_env": ["MY_TOKEN"]})
    use_up(daemon)
    assert daemon.new().call("prompt", prompt="hello")["held"]["account"] == "team-max-1"
    use_up(daemon, env={"MY_TOKEN": "a client's own"})
    row = shared(daemon)
    assert (row["account"], row["limit"]["state"], len(row["waiting"])) == ("team-max-1", "limited", 1)
    assert {row["account"].partition("#")[0] for row in daemon.call("daemon/status")["accounts"]} == {
        "team-max-1", "demo",
    }  # fmt: skip


def test_an_account_with_the_name_of_a_kind_is_another_than_the_login(tmp_path: Path) -> None:
    accounts = book(tmp_path)
    login, named = (
        accounts.account_of(
            cast("Any", SimpleNamespace(config=SimpleNamespace(kind="claude", env={}, account=name))), {}
        )
        for name in ("", "claude")
    )
    assert login is not named and login.name == named.name


def test_a_limit_that_another_box_reports_holds_turns_until_its_end_and_survives_a_restart(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(demo={"account": "team"})
    now = time.time()
    limit = {"state": "limited", "until": now + 3600, "said_at": now}
    daemon.call("account/report", account="team", limit=limit)
    assert daemon.new().call("prompt", prompt="hello")["held"]["retry_after_s"] > 3000
    daemon.call("account/report", account="team", limit={"state": "ok", "said_at": now - 1})  # older
    daemon.call("account/report", account="team", limit={"state": "ok", "said_at": now + 600})  # from a wrong clock
    daemon.restart()
    assert (shared(daemon)["limit"]["state"], len(shared(daemon)["waiting"])) == ("limited", 1)
    daemon.call("account/report", account="team", limit={"state": "ok", "said_at": now + 1})
    until(lambda: not shared(daemon)["waiting"])


def test_while_another_box_tries_first_no_turn_starts_here(serve: Callable[..., Harness]) -> None:
    daemon = serve(demo={"account": "team"})
    daemon.call("account/report", account="team", probe="elsewhere")
    assert daemon.new().ask("hello")["outcome"] == "completed"  # without a limit there is nothing to try
    now = time.time()
    limit = {"state": "limited", "until": now - 1, "said_at": now}
    daemon.call("account/report", account="team", limit=limit, probe="elsewhere")
    session = daemon.new()
    held = session.call("prompt", prompt="hello")["held"]
    assert (held["until"], held["position"]) == (None, 1)
    until(lambda: shared(daemon)["waiting"] == [session.id])
    daemon.call("account/report", account="team", probe="elsewhere")
    assert not session.events("turn_started")
    daemon.call("account/report", account="team")
    session.await_event("turn_completed")


def test_the_first_try_of_another_box_has_a_minute_and_ends_with_the_longest_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(module, "clock", SimpleNamespace(wall=lambda: now))
    config = parse_config({"daemon": {"limit_hold_s": 100}, "backends": {"demo": {"account": "team"}}})
    used = Accounts(str(tmp_path), cast("Any", GoodDisk()), config).shared["team"]

    def waits() -> bool:
        return used.held("s") is not None

    used.learn(AccountLimit(state="limited", until=1010, said_at=1000), elsewhere=True)
    now = 1069.0
    assert waits()
    now = 1070.0
    assert not waits()
    used.learn(None, elsewhere=True)
    assert waits()
    now = 1099.0
    assert waits()
    now = 1100.0
    assert not waits()
    used.learn(None, elsewhere=True)
    assert not waits()


def test_a_report_about_an_account_that_no_backend_has_is_refused(serve: Callable[..., Harness]) -> None:
    with pytest.raises(ClisupError, match="no backend has the account 'team'"):
        serve().call("account/report", account="team")
