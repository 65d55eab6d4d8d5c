"""Log of a job: no message of another member changes what a box and the submitter said."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from clisup.fleet.job_log import MAX_RUNS, MAX_TEXT, SAYS_LOST, EndedJobs, JobLog
from clisup.fleet.jobs import GONE_S, RUNS, START_S, JobState

T = 1_000_000.0
GOOD, EVIL, CI = "good", "evil", "ci"
Step = tuple[str, str, JobState]


def mine(status: str, attempt: int, **fields: object) -> JobState:
    return JobState(status=status, submitter=CI, box=GOOD, incarnation="g1", attempt=attempt, **fields)  # type: ignore[arg-type]


FIRST: Step = ("submit", CI, JobState(submitter=CI))
CLAIM: Step = ("work", GOOD, mine("claimed", 0))
START: Step = ("work", GOOD, mine("started", 1))
DONE: Step = ("work", GOOD, mine("done", 1, outcome="completed"))


def log_of(*steps: Step, first: JobState = FIRST[2], between_s: float = 1.0) -> JobLog:
    log = JobLog()
    for number, (role, writer, step) in enumerate([("submit", CI, first), *steps]):
        log.take(role, writer, step, T + number * between_s)
    return log


def status(log: JobLog) -> str:
    return log.state.status if log.state else "none"


def test_a_job_goes_from_its_submitter_over_a_box_to_its_end() -> None:
    assert [status(log_of(*(CLAIM, START, DONE)[:n])) for n in range(4)] == ["pending", "claimed", "started", "done"]
    state = log_of(CLAIM, START, DONE).state
    assert state is not None
    assert (state.box, state.attempt, state.outcome, state.submitter) == (GOOD, 1, "completed", CI)


@pytest.mark.parametrize(
    ("role", "writer", "submitter"), [("work", CI, CI), ("work", EVIL, EVIL), ("submit", EVIL, CI)]
)
def test_only_its_submitter_makes_a_job(role: str, writer: str, submitter: str) -> None:
    assert not JobLog().take(role, writer, JobState(submitter=submitter), T)


def test_the_first_of_two_claims_counts() -> None:
    theirs = ("work", EVIL, JobState(status="claimed", box=GOOD, incarnation="e1"))
    state = log_of(CLAIM, theirs, START).state
    assert state is not None
    assert (state.status, state.box) == ("started", GOOD)
    state = log_of(theirs, CLAIM, START).state
    assert state is not None
    assert (state.status, state.box, state.incarnation) == ("claimed", EVIL, "e1"), "the engine says who writes"


def test_a_job_for_one_box_is_taken_by_no_other() -> None:
    theirs = ("work", EVIL, JobState(status="claimed", incarnation="e1"))
    assert status(log_of(theirs, first=JobState(submitter=CI, for_box=GOOD))) == "pending"


def test_no_box_starts_a_job_after_its_time_or_more_often_than_its_number_of_runs() -> None:
    assert status(log_of(CLAIM, first=JobState(submitter=CI, not_after=T + 0.5))) == "pending"
    assert status(log_of(CLAIM, START, first=JobState(submitter=CI, not_after=T + 1.5))) == "claimed"
    back = ("work", GOOD, mine("pending", 1))
    again = ("work", GOOD, mine("claimed", 1))
    assert status(log_of(CLAIM, START, back, again, first=JobState(submitter=CI, runs=1))) == "pending"
    assert status(log_of(CLAIM, START, back, again, first=JobState(submitter=CI, runs=2))) == "claimed"


def test_a_submitter_cannot_ask_for_unbounded_time_or_runs() -> None:
    for asked, got in ((0.0, T + START_S), (1e300, T + START_S), (T + 5, T + 5)):
        state = log_of(first=JobState(submitter=CI, not_after=asked, runs=10**9)).state
        assert state is not None
        assert (state.not_after, state.runs) == (got, MAX_RUNS)
    assert not (log_of().state or JobState()).is_stale(T + START_S)
    assert (log_of().state or JobState()).is_stale(T + START_S + 60)


def test_texts_of_a_box_are_bounded() -> None:
    state = log_of(CLAIM, START, ("work", GOOD, mine("done", 1, outcome="x" * 9999, error="y" * 9999))).state
    assert state is not None
    assert (len(state.outcome), len(state.error)) == (MAX_TEXT, MAX_TEXT)


def test_a_claim_without_a_start_is_free_after_a_while_and_its_box_then_does_not_start() -> None:
    theirs = ("work", EVIL, JobState(status="claimed", incarnation="e1"))
    soon = log_of(CLAIM, theirs, between_s=GONE_S - 1)
    assert (soon.state or JobState()).box == GOOD
    later = log_of(CLAIM, theirs, START, between_s=GONE_S)
    assert ((later.state or JobState()).box, status(later)) == (EVIL, "claimed")


def test_a_lost_job_runs_elsewhere_only_with_leave_and_only_if_its_box_says_nothing() -> None:
    lost = ("work", EVIL, JobState(status="lost", attempt=1))
    theirs = ("work", EVIL, JobState(status="claimed", incarnation="e1", attempt=1))
    answer = ("work", GOOD, mine("started", 1))
    leave = JobState(submitter=CI, on_lost="rerun")
    assert status(log_of(CLAIM, START, lost, theirs, first=leave, between_s=GONE_S)) == "claimed"
    assert status(log_of(CLAIM, START, lost, theirs, between_s=GONE_S)) == "lost"
    assert status(log_of(CLAIM, START, lost, theirs, first=leave)) == "lost"
    assert status(log_of(CLAIM, START, lost, answer, theirs, first=leave, between_s=GONE_S)) == "started"
    assert status(log_of(CLAIM, START, *[lost, answer] * SAYS_LOST, lost)) == "started", "it has said so often enough"


THEIRS = st.builds(
    JobState,
    status=st.sampled_from(["pending", "claimed", "started", "done", "lost", "cancelled", "expired"]),
    submitter=st.sampled_from([CI, EVIL, GOOD, ""]),
    on_lost=st.sampled_from(["wait", "rerun"]),
    box=st.sampled_from([GOOD, EVIL, ""]),
    incarnation=st.sampled_from(["g1", "e1", ""]),
    attempt=st.integers(-1, 3),
    outcome=st.sampled_from(["completed", "forged"]),
    for_box=st.sampled_from(["", EVIL]),
    not_after=st.sampled_from([0.0, 1.0, 1e18]),
    runs=st.sampled_from([0, 1, 10**6]),
)
MESSAGES = st.lists(
    st.tuples(st.integers(2, 4), st.sampled_from([("work", EVIL), ("work", "evil2"), ("submit", EVIL)]), THEIRS),
    max_size=16,
)


@given(messages=MESSAGES, on_lost=st.sampled_from(["wait", "rerun"]))
@settings(max_examples=100)
def test_no_messages_of_others_change_the_end_of_a_job_that_a_box_has(
    messages: list[tuple[int, tuple[str, str], JobState]], on_lost: str
) -> None:
    """They come anywhere behind the claim, within the time in which the box starts, and answers."""
    log, at = JobLog(), T
    own = [("submit", CI, JobState(submitter=CI, on_lost=on_lost)), CLAIM, START, DONE]  # type: ignore[arg-type]
    for number, (role, writer, step) in enumerate(own):
        if number == 3 and status(log) == "lost":
            assert log.take("work", GOOD, mine("started", 1), at)
        assert log.take(role, writer, step, at)
        for place, (their_role, they), theirs in messages:
            if place == number + 1:
                at += 0.1
                log.take(their_role, they, theirs, at)
    state = log.state
    assert state is not None
    assert (state.status, state.box, state.attempt, state.outcome, state.submitter) == (
        "done",
        GOOD,
        1,
        "completed",
        CI,
    )
    assert (state.runs, state.not_after, state.on_lost) == (RUNS, T + START_S, on_lost)


def test_a_box_remembers_what_it_ended_for_a_bounded_time_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EndedJobs, "MOST", 20)
    jobs = EndedJobs({"a": [2, T], "damaged": "x", "too": [1]})
    assert (jobs.ended("a"), jobs.ended("damaged"), jobs.ended("b")) == (2, 0, 0)
    jobs.add("a", 1, T, 10.0)
    assert jobs.ended("a") == 2, "an older attempt changes nothing"
    jobs.add("b", 1, T + 20, 10.0)
    assert (jobs.ended("a"), jobs.ended("b")) == (0, 1)
    for number in range(EndedJobs.MOST + 5):
        jobs.add(str(number), 1, T + 20, 10.0)
    assert len(jobs.rows) == EndedJobs.MOST
    assert EndedJobs(jobs.rows).ended(str(EndedJobs.MOST)) == 1


def test_an_end_is_final_for_its_own_box_too() -> None:
    log = log_of(CLAIM, START, DONE)
    for step in (
        START,
        CLAIM,
        ("work", GOOD, mine("pending", 1)),
        ("submit", CI, replace(FIRST[2], status="cancelled")),
        FIRST,
    ):
        assert not log.take(*step, T + 100)
