"""Budgets: prompts are refused, queued turns end without a start, and the turn that uses one up is ended; a kill changes nothing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from commands import environment, run
from harness import Harness, until
from session_probe import SessionProbe

from clisup.errors import ClisupError


def refused(session: SessionProbe, **params: Any) -> dict[str, Any]:
    """What the refusal of a prompt says."""
    with pytest.raises(ClisupError) as error:
        session.call("prompt", prompt="more", **params)
    assert error.value.kind == "budget_exhausted"
    return error.value.data


def test_a_session_without_a_budget_has_none(daemon: Harness) -> None:
    session = daemon.new()
    session.ask("hello")
    assert session.get()["budget"] is None


def test_what_turns_use_is_summed_and_told(daemon: Harness) -> None:
    session = daemon.new(budget={"usd": 1.0, "tokens": 1000})
    session.ask("@usage 100 20\n@cost 0.25\nhello")
    session.ask("@usage 10 5\n@cost 0.5\nhello")
    budget = session.get()["budget"]
    assert budget["limit"] == {"usd": 1.0, "tokens": 1000}
    assert budget["exhausted"] is None
    assert (budget["used"]["usd"], budget["used"]["tokens"], budget["used"]["turns"]) == (0.75, 135, 2)
    assert 0 < budget["used"]["wall_s"] < 600


@pytest.mark.parametrize(
    ("limit", "used"), [({"tokens": 100}, 120), ({"usd": 0.2}, 0.25), ({"turns": 1}, 1), ({"wall_s": 0.000001}, None)]
)
def test_a_prompt_after_the_end_of_a_budget_is_refused_and_told_why(
    daemon: Harness, limit: dict[str, float], used: float | None
) -> None:
    session = daemon.new(budget=limit)
    turn = session.prompt("@usage 100 20\n@cost 0.25\nhello")
    session.end_of(turn)
    ((name, value),) = limit.items()
    data = refused(session)
    assert (data["which"], data["limit"]) == (name, value)
    assert data["used"] >= value and (used is None or data["used"] == used)
    assert session.get()["budget"]["exhausted"] == name
    assert len(session.events("prompt_accepted")) == 1


def long_work(steps: int, *, padding: int = 4000, last: str = "Done.") -> str:
    """A prompt of some thousand characters, a quarter of which each of its model calls has as input tokens."""
    return "\n".join(["x" * padding, *(f"@bash echo {number}" for number in range(steps)), last])


PRICED = '[prices."demo-*"]\ninput = 1000.0\noutput = 2000.0'
"""So that a thousand tokens of input are a dollar."""


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_a_turn_that_reaches_its_limit_in_the_middle_is_ended_as_failed(daemon: Harness, mode: str) -> None:
    session = daemon.new(mode=mode, budget={"tokens": 1500})
    turn = session.prompt(long_work(3, last="@stall"))
    end = session.end_of(turn)
    assert (end["outcome"], end["error"]["kind"], end["error"]["retryable"]) == ("failed", "budget", False)
    assert "1500 tokens" in end["error"]["message"]
    what = "turn" if mode == "live" else "run"
    assert [event["message"] for event in session.events("notice", code="ending")] == [
        f"the {what} is being ended: budget"
    ]
    assert refused(session)["which"] == "tokens"
    if mode == "live":  # which was asked politely, and stays for when the budget is raised
        assert session.get()["live"]
        session.call("set_budget", budget={"tokens": 100_000})
        assert session.ask("hello")["outcome"] == "completed"
        assert len(session.events("process_started")) == 1


def test_a_cli_that_does_not_listen_is_ended_by_the_ladder(serve: Callable[..., Harness]) -> None:
    daemon = serve(timeouts={"int_grace": 0.2, "term_grace": 0.2})
    session = daemon.new(budget={"tokens": 1500})
    turn = session.prompt(f"@ignore-int\n@ignore-term\n{long_work(2, last='@stall')}")
    end = session.end_of(turn)
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "budget")
    (gone,) = session.events("process_exited")
    assert (gone["ended_by"], gone["signal"]) == ("budget", 9)
    assert end["usage"]["source"] == "estimated", "what it had told of before it was killed"
    assert session.get()["budget"]["used"]["tokens"] >= 1500


def test_a_turn_whose_last_word_is_said_is_not_ended_any_more(daemon: Harness) -> None:
    session = daemon.new(budget={"tokens": 1000})
    turn = session.prompt(long_work(0, last="Done.\n@linger 1"))
    assert session.end_of(turn)["outcome"] == "completed"
    assert session.events("notice", code="ending") == []
    assert refused(session)["which"] == "tokens"


def test_time_in_turns_is_limited_and_time_between_them_is_not(daemon: Harness) -> None:
    session = daemon.new(budget={"wall_s": 5.0})
    session.ask("@sleep 0.5\nhello")
    before = session.get()["budget"]["used"]["wall_s"]
    assert before >= 0.5
    end = session.end_of(session.prompt("@stall"))
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "budget")
    assert session.get()["budget"]["used"]["wall_s"] >= 5


def test_a_turns_cost_is_estimated_while_it_runs_and_what_the_cli_reports_counts_at_its_end(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(raw=PRICED)
    session = daemon.new(budget={"usd": 2.5})
    end = session.end_of(session.prompt(long_work(3, last="@stall")))
    assert (end["outcome"], end["error"]["kind"], end["cost_source"]) == ("failed", "budget", "reported")
    assert session.get()["budget"]["used"]["usd"] == pytest.approx(end["cost_usd"])


def test_a_killed_turn_has_an_estimated_cost_where_its_model_has_a_price_and_none_where_not(
    serve: Callable[..., Harness],
) -> None:
    for raw, source in ((PRICED, "estimated"), ("", "unknown")):
        session = serve(raw=raw).new(budget={"usd": 1000.0})
        end = session.end_of(session.prompt(long_work(1, last="@die KILL")))
        assert (end["outcome"], end["cost_source"]) == ("failed", source)
        counts = end["usage"]
        cost = counts["input_tokens"] / 1000 + counts["output_tokens"] / 500
        used, summary = session.get()["budget"]["used"], session.get()
        if source == "estimated":
            assert end["cost_usd"] == pytest.approx(cost) == pytest.approx(used["usd"])
            assert (summary["cost_source"], used["unpriced"]) == ("estimated", 0)
        else:
            assert "cost_usd" not in end
            assert (used["usd"], used["unpriced"], summary["cost_usd"]) == (None, 1, None)


def test_prompts_that_wait_end_without_a_start(daemon: Harness, tmp_path: Path) -> None:
    session = daemon.new(budget={"tokens": 1500})
    gate = tmp_path / "go"
    first = session.prompt(f"@wait-file {gate}\n{long_work(3, last='@stall')}")
    waiting = [session.prompt("next"), session.prompt("and next")]
    gate.touch()
    assert session.end_of(first)["error"]["kind"] == "budget"
    for turn in waiting:
        end = session.end_of(turn)
        assert (end["outcome"], end["error"]["kind"]) == ("failed", "budget")
        assert session.events("turn_started", turn_id=turn) == []
    assert session.get()["queue"] == []
    until(lambda: not list((session.dir / "prompts").glob("*")))


def test_no_more_prompts_are_taken_than_there_are_turns_for(daemon: Harness) -> None:
    session = daemon.new(budget={"turns": 2})
    first = session.prompt("@sleep 0.3\nhello")
    second = session.prompt("hello")
    assert refused(session) == {"which": "turns", "limit": 2, "used": 2}
    assert [session.end_of(turn)["outcome"] for turn in (first, second)] == ["completed", "completed"]
    assert refused(session)["which"] == "turns"


def test_a_known_key_is_answered_also_when_the_budget_is_used_up(daemon: Harness) -> None:
    session = daemon.new(budget={"turns": 1})
    first = session.ask("hello", key="k")
    assert session.ask("hello", key="k")["turn_id"] == first["turn_id"]


# -- what survives ----------------------------------------------------------------------------------------------------


def test_what_was_used_survives_kills_and_nothing_is_counted_twice(daemon: Harness) -> None:
    session = daemon.new(budget={"tokens": 100_000, "usd": 100.0, "turns": 50})
    session.ask("@usage 100 20\n@cost 0.25\nhello")
    before = session.get()["budget"]
    daemon.restart()
    assert session.get()["budget"] == before
    session.ask("@usage 10 5\n@cost 0.5\nhello")
    daemon.restart()
    daemon.restart()
    used = session.get()["budget"]["used"]
    assert (used["usd"], used["tokens"], used["turns"]) == (0.75, 135, 2)


def test_a_turn_is_held_to_its_budget_by_the_daemon_after_a_kill_too(daemon: Harness, tmp_path: Path) -> None:
    session = daemon.new(budget={"tokens": 3500})
    gate = tmp_path / "go"
    turn = session.prompt(long_work(1, last=f"@wait-file {gate}\n{long_work(3, padding=0, last='@stall')}"))
    session.await_event("tool_result")
    seen = session.get()["budget"]["used"]["tokens"]
    assert 2000 < seen < 3500
    daemon.restart()
    assert session.get()["budget"]["used"]["tokens"] == seen
    gate.touch()
    end = session.end_of(turn)
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "budget")


def test_an_end_that_was_decided_is_carried_out_by_the_next_daemon(serve: Callable[..., Harness]) -> None:
    daemon = serve(timeouts={"int_grace": 30, "term_grace": 1})
    session = daemon.new(budget={"tokens": 1500})
    turn = session.prompt(f"@ignore-int\n{long_work(2, last='@stall')}")
    session.await_event("notice", code="ending")
    daemon.restart()
    end = session.end_of(turn)
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "budget")
    assert refused(session)["which"] == "tokens"


def test_another_budget_survives_a_kill_and_lets_work_go_on(daemon: Harness) -> None:
    session = daemon.new(budget={"turns": 1})
    session.ask("hello")
    assert refused(session)["limit"] == 1
    told = session.call("set_budget", budget={"turns": 3, "tokens": 1_000_000})["budget"]
    assert (told["limit"], told["used"]["turns"], told["exhausted"]) == ({"turns": 3, "tokens": 1_000_000}, 1, None)
    daemon.restart()
    assert session.get()["budget"]["limit"] == {"turns": 3, "tokens": 1_000_000}
    assert session.ask("hello")["outcome"] == "completed"
    (notice,) = session.events("notice", code="budget_set")
    assert notice["data"] == {"turns": 3, "tokens": 1_000_000} and notice["actor"]["pid"] > 0


def test_an_empty_budget_limits_nothing(daemon: Harness) -> None:
    session = daemon.new(budget={"turns": 1})
    session.ask("hello")
    assert session.call("set_budget", budget={}) == {"budget": None}
    assert session.ask("hello")["outcome"] == "completed"
    assert session.get()["budget"] is None


def test_a_lower_budget_ends_the_turn_that_runs(daemon: Harness) -> None:
    session = daemon.new()
    turn = session.prompt(long_work(1, last="@stall"))
    session.await_event("tool_result")
    session.call("set_budget", budget={"tokens": 10})
    assert session.end_of(turn)["error"]["kind"] == "budget"


def test_a_fork_has_the_same_budget_and_has_used_nothing_of_it(daemon: Harness) -> None:
    session = daemon.new(budget={"turns": 1})
    session.ask("hello")
    session.call("set_budget", budget={"turns": 2})
    fork = SessionProbe(daemon, session.call("fork")["session_id"])
    budget = fork.get()["budget"]
    assert (budget["limit"], budget["used"]["turns"], budget["used"]["tokens"]) == ({"turns": 2}, 0, 0)
    assert fork.ask("hello")["outcome"] == "completed"


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "budget",
    [{"usd": 0}, {"usd": -1.0}, {"tokens": 0}, {"tokens": 1.5}, {"turns": "2"}, {"wall_s": 0}, {"euros": 1}, [], "1"],
)
def test_a_budget_that_makes_no_sense_is_refused(daemon: Harness, budget: Any) -> None:
    with pytest.raises(ClisupError) as error:
        daemon.new(budget=budget)
    assert error.value.kind == "invalid_params"


def test_a_closed_session_gets_no_other_budget(daemon: Harness) -> None:
    session = daemon.new(budget={"turns": 1})
    session.call("close")
    with pytest.raises(ClisupError) as error:
        session.call("set_budget", budget={"turns": 2})
    assert error.value.kind == "session_closed"


def test_a_steered_prompt_is_refused_where_the_turn_is_being_ended_for_its_budget(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(timeouts={"int_grace": 30})
    session = daemon.new(mode="live", budget={"tokens": 1500})
    session.prompt(f"@ignore-int\n{long_work(1, last='@stall')}")
    session.await_event("message_stop")
    assert refused(session, when_busy="steer")["which"] == "tokens"


def test_what_a_running_turn_has_used_is_known_again_also_over_segments_of_the_journal(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    daemon = serve(daemon={"segment_bytes": 65536})
    session = daemon.new(budget={"tokens": 10_000_000})
    gate = tmp_path / "go"
    session.ask("@usage 100 20\nhello")
    session.prompt("\n".join(["x" * 70_000, "@bash echo 1", "y" * 70_000, "@bash echo 2", f"@wait-file {gate}"]))
    session.await_event("tool_result", 2)
    seen = session.get()["budget"]["used"]["tokens"]
    assert seen > 2 * 140_000 / 4, "two model calls with the whole prompt"
    assert len(list((session.dir / "journal").glob("*.jsonl"))) > 1
    for _ in range(2):
        daemon.restart()
        assert session.get()["budget"]["used"]["tokens"] == seen
    gate.touch()


def test_an_end_that_tells_less_than_the_calls_did_gives_nothing_back(daemon: Harness) -> None:
    session = daemon.new(budget={"tokens": 1_000_000})
    end = session.ask(f"@usage 1 1\n{long_work(2)}")
    assert end["usage"]["input_tokens"] == 1
    used = session.get()["budget"]["used"]["tokens"]
    assert used > 3000
    daemon.restart()
    assert session.get()["budget"]["used"]["tokens"] == used


# -- what people see --------------------------------------------------------------------------------------------------


def test_the_command_line_opens_shows_and_raises_a_budget(daemon: Harness) -> None:
    ran = run(
        daemon,
        "run",
        "-b",
        "demo",
        "-C",
        str(daemon.cwd),
        "--budget-tokens",
        "100",
        "--budget-usd",
        "2",
        "@usage 90 20\nhi",
    )
    assert ran.returncode == 0
    session_id = ran.stderr.split("session ", 1)[1].split()[0]
    page = run(daemon, "status", session_id).stdout
    assert re.search(r"Budget: [0-9.]+ of 2 USD, 110 of 100 tokens; used up", page)
    why = run(daemon, "status", "--why", session_id).stdout
    assert "no turn may start: the budget of 100 tokens is used up (110)" in why
    refused = run(daemon, "run", "--session", session_id, "more")
    assert refused.returncode == 1
    assert "budget of 100 tokens is used up" in refused.stderr and "clisup set" in refused.stderr
    assert "110 of 500 tokens" in run(daemon, "set", session_id, "--budget-tokens", "500").stdout
    assert run(daemon, "run", "--session", session_id, "more").returncode == 0
    assert run(daemon, "set", session_id, "--no-budget").stdout == "budget: none\n"


def test_a_budget_is_shown_without_a_daemon_too(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new(budget={"tokens": 100})
    session.ask("@usage 90 20\nhello")
    told = session.get()["budget"]
    daemon.kill()
    shown = run(daemon, "status", "--json", session.id)
    assert shown.returncode == 3
    assert json.loads(shown.stdout)["budget"] == told
    assert "used up" in run(daemon, "status", session.id).stdout
    daemon.start()


def test_the_example_works_until_its_budget_is_used_up_and_raises_it_once(daemon: Harness) -> None:
    """docs/examples/session_budget.py."""
    program = Path(__file__).resolve().parents[2] / "docs" / "examples" / "session_budget.py"
    prompts = ["@usage 90 20\nFirst.", "@usage 10 5\nSecond.", long_work(2, last="@stall")]
    command = [sys.executable, str(program), "demo", "100", *prompts]
    ran = subprocess.run(command, env=environment(daemon), cwd=daemon.cwd, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert lines[:3] == ["First. (110 tokens)", "110 of 100 tokens used: twice as many, once", "Second. (15 tokens)"]
    assert lines[3].startswith("ended in the middle: the turn was ended: the session's budget of 200 tokens is used up")
    assert int(lines[4].split()[2]) >= 2000
