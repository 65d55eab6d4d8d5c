"""Jobs: the table of states, the choice of a box, and no start without leave in any interleaving."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from clisup.errors import UsageError, WorldError
from clisup.fleet.job_log import JobLog
from clisup.fleet.jobs import (
    BoxFacts,
    BoxView,
    HeardBeats,
    JobRequest,
    JobState,
    JobStatus,
    OwnTurn,
    cancel,
    claim_delay,
    job_id,
    misfit,
    next_deed,
    next_step,
    read_request,
    read_state,
    request_subject,
    session_of,
    write_state,
)

JOB = job_id("ci", "nightly")


def state(status: JobStatus, box: str = "a", *, attempt: int = 1, **fields: object) -> JobState:
    made = JobState(status=status, submitter="ci", box=box, incarnation=f"{box}1" if box else "", attempt=attempt)
    return replace(made, **fields)


def view(box: str = "a", incarnation: str = "", **fields: object) -> BoxView:
    return BoxView(box, incarnation or f"{box}1")._replace(**fields)


def after(before: JobState, seen: BoxView) -> JobState | None:
    return next_step(before, seen)


# -- names ------------------------------------------------------------------------------------------------------------


def test_the_same_key_of_a_submitter_is_the_same_job() -> None:
    assert job_id("ci", "nightly") == JOB
    assert job_id("ci", "nightly") != job_id("anna", "nightly")
    assert job_id("a\nb", "c") != job_id("a", "b c")
    assert session_of(JOB, 1) == session_of(JOB, 1) != session_of(JOB, 2)
    assert request_subject("ci", JOB) == f"clisup.job.ci.{JOB}"


def test_a_state_survives_its_value_and_another_value_is_refused() -> None:
    before = state("lost", on_lost="rerun", outcome="failed", late=True)
    assert read_state(write_state(before)) == before
    assert read_state(b'{"status":"pending","later":1}') == JobState()
    for value in (b"", b"[]", b'{"status":"flying"}', b"[" * 100_000):
        with pytest.raises(WorldError, match="state of a job"):
            read_state(value)


def test_a_request_is_only_of_the_submitter_whose_subject_it_has() -> None:
    value = msgspec.json.encode(REQUEST)
    assert read_request(request_subject("ci", JOB), value) == REQUEST
    with pytest.raises(WorldError, match="names another submitter") as caught:
        read_request(request_subject("anna", JOB), value)
    assert caught.value.kind == "permission_denied"
    with pytest.raises(WorldError, match="names another submitter"):
        read_request(request_subject("ci", job_id("ci", "other")), value)


@pytest.mark.parametrize("value", [b"", b"[]", b"{}", b'{"later": 1}', b"[" * 100_000])
def test_a_request_that_this_clisup_does_not_understand_is_not_run(value: bytes) -> None:
    with pytest.raises(WorldError, match="request of a job"):
        read_request(request_subject("ci", JOB), value)
    with pytest.raises(WorldError, match="request of a job"):
        read_request("clisup.job.ci.x", msgspec.json.encode(replace(REQUEST, job="x")))
    whole = msgspec.json.encode(REQUEST)[:-1] + b',"later":1}'
    with pytest.raises(WorldError, match="later"):
        read_request(request_subject("ci", JOB), whole)


# -- the steps of a box -----------------------------------------------------------------------------------------------


def test_a_box_that_fits_claims_and_starts_its_own_claim() -> None:
    pending = state("pending", "", attempt=0)
    assert after(pending, view()) is None
    assert after(pending, view(fits=True)) == state("claimed", attempt=0)
    assert after(state("claimed", attempt=0), view(fits=True)) == state("started")
    assert after(state("claimed", attempt=0), view("b", fits=True)) is None


def test_a_box_gives_a_claim_back_that_it_may_not_start_any_more() -> None:
    step = after(state("claimed", attempt=0), view())
    assert step is not None
    assert step.status == "pending"


def test_the_daemon_is_told_only_after_the_step_to_started() -> None:
    assert next_deed(state("claimed", attempt=0), view()) is None
    assert next_deed(state("started"), view()) == "start"
    assert next_deed(state("started"), view("b")) is None
    assert next_deed(state("started"), view("a", "a2")) is None
    assert next_deed(state("started"), view(turn="open")) is None
    assert next_deed(state("lost"), view()) == "refuse"
    assert next_deed(state("pending", ""), view()) is None


def test_the_end_of_the_turn_is_the_end_of_the_job() -> None:
    ended = view(turn="ended", outcome="completed")
    assert after(state("started"), ended) == state("done", outcome="completed")
    assert after(state("started"), view(turn="open")) is None
    assert after(state("lost"), ended) == state("done", outcome="completed")
    assert after(state("lost"), ended._replace(was_away=True)) == state("done", outcome="completed", late=True)
    assert after(state("done"), ended) is None


def test_a_box_answers_at_once_when_another_calls_its_running_job_lost() -> None:
    assert after(state("lost"), view(turn="open")) == state("started")
    assert after(state("lost"), view(turn="open", was_away=True)) == state("started", late=True)


def test_another_box_takes_a_job_whose_box_is_gone_only_after_a_while() -> None:
    gone = view("b", holder_gone=True, fits=True)
    claimed = state("claimed", attempt=0)
    assert after(claimed, gone) is None
    assert after(claimed, gone._replace(is_silent=True)) == state("claimed", "b", attempt=0)
    assert after(state("started"), view("b")) is None
    called = after(state("started", on_lost="rerun"), gone)
    assert called == state("lost", "b", on_lost="rerun")
    silent = gone._replace(is_silent=True)
    assert after(state("lost", on_lost="rerun"), silent) == state("claimed", "b", on_lost="rerun")
    assert after(state("lost"), silent) is None


def test_a_box_that_is_back_gives_a_job_back_only_when_its_daemon_refuses_the_prompt() -> None:
    assert after(state("lost"), view()) is None
    step = after(state("lost"), view(turn="refused"))
    assert step is not None
    assert step.status == "pending"


def test_a_box_with_a_new_disk_takes_up_none_of_its_earlier_jobs() -> None:
    again = view("a", "a2", turn="refused")
    assert after(state("lost"), again) is None
    assert after(state("started"), again) is None
    called = after(state("started"), again._replace(holder_gone=True))
    assert called is not None
    assert called.status == "lost"


def test_the_submitter_cancels_what_is_pending() -> None:
    pending = state("pending", "", attempt=0)
    assert cancel(pending, "ci") == state("cancelled", "", attempt=0)
    with pytest.raises(UsageError, match="ci submitted it") as caught:
        cancel(pending, "anna")
    assert caught.value.kind == "permission_denied"
    with pytest.raises(UsageError, match="started; interrupt its session"):
        cancel(state("started"), "ci")


# -- beats ------------------------------------------------------------------------------------------------------------


def test_a_box_without_a_beat_is_gone_after_a_while() -> None:
    beats = HeardBeats("me")
    beats.hear("me", "m", 0)
    beats.hear("a", "a1", 0)
    for now in range(5, 30, 5):
        beats.hear("me", "m", now)
    assert not beats.is_gone("a", "a1", 20)
    assert beats.is_gone("a", "a1", 21)
    assert beats.is_gone("never", "n1", 21)
    beats.hear("a", "a1", 22)
    assert not beats.is_gone("a", "a1", 23)
    assert beats.is_gone("a", "a0", 23)


def test_an_observer_that_is_cut_off_declares_no_box_gone() -> None:
    beats = HeardBeats("me")
    assert not beats.is_gone("a", "a1", 1000)
    beats.hear("me", "m", 0)
    beats.hear("a", "a1", 0)
    assert not beats.is_gone("a", "a1", 100)
    beats.hear("me", "m", 100)  # back, and the beats of the others may still be under way
    assert not beats.is_gone("a", "a1", 101)
    for now in (105, 110, 115, 120):
        beats.hear("me", "m", now)
    assert beats.is_gone("a", "a1", 121)


# -- placement --------------------------------------------------------------------------------------------------------

REQUEST = JobRequest(
    job=JOB, submitter="ci", prompt="hi", backend="claude", versions=">=2", cwd="/src", needs={"gpu": ""}
)
FACTS = BoxFacts(
    "a",
    accept={"ci"},
    free=1,
    labels={"gpu": "a100"},
    versions={"claude": "2.1"},
    directories={"/src"},
    workspaces={"w"},
)


def test_a_box_that_has_all_takes_the_job() -> None:
    assert misfit(REQUEST, FACTS) == ""
    assert misfit(replace(REQUEST, box="a", cwd=None, workspace="w", needs={"gpu": "a100"}), FACTS) == ""


@pytest.mark.parametrize(
    ("request_with", "facts_with", "why"),
    [
        ({"box": "b"}, {}, "the job is for b"),
        ({}, {"accept": ()}, "a accepts no jobs of ci"),
        ({"needs": {"gpu": "h100"}}, {}, "a has no label gpu=h100"),
        ({}, {"labels": {}}, "a has no label gpu"),
        ({}, {"versions": {}}, "a has no backend claude"),
        ({}, {"versions": {"claude": "1.9"}}, "claude is 1.9 on a, and the job needs >=2"),
        ({}, {"held": {"claude"}}, "the account of claude is limited"),
        ({"cwd": "/other"}, {}, "a has no directory /other"),
        ({"workspace": "v"}, {}, "a has no workspace v"),
        ({}, {"free": 0}, "no free slot"),
    ],
)
def test_a_box_says_why_it_does_not_take_a_job(
    request_with: dict[str, object], facts_with: dict[str, object], why: str
) -> None:
    assert misfit(replace(REQUEST, **request_with), FACTS._replace(**facts_with)) == why


def test_a_wrong_version_range_of_a_submitter_is_a_reason_and_no_crash() -> None:
    assert "version range" in misfit(replace(REQUEST, versions="about 2"), FACTS)


def test_an_idle_box_claims_faster() -> None:
    assert claim_delay(0, 1.0) == 0.05
    assert claim_delay(3, 1.0) == 0.2
    assert claim_delay(3, 0.0) == 0.0


# -- every interleaving -----------------------------------------------------------------------------------------------


class Host:
    """One box: its daemon's sessions, and its incarnation."""

    def __init__(self, name: str) -> None:
        self.name, self.life = name, 1
        self.sessions: dict[str, OwnTurn] = {}

    @property
    def incarnation(self) -> str:
        return f"{self.name}{self.life}"

    def view(self, now: JobState, *, gone: bool, fits: bool) -> BoxView:
        turn = self.sessions.get(session_of(JOB, now.attempt), "absent")
        return BoxView(self.name, self.incarnation, fits, turn, "completed", holder_gone=gone, is_silent=gone)


class Fleet:
    """Boxes around the log of one job. Steps and deeds are under way for any time, arrive twice, or never.

    A box knows the log up to some place: `known` is the state that it has read last.
    """

    def __init__(self, on_lost: str) -> None:
        self.log, self.clock = JobLog(), 1000.0
        self.log.take("submit", "ci", JobState(submitter="ci", on_lost=on_lost), self.clock)  # type: ignore[arg-type]
        self.hosts = [Host(name) for name in "abc"]
        self.known = {host.name: self.value for host in self.hosts}
        self.flying: list[tuple[Host, int, Callable[[], None]]] = []
        self.starts: list[tuple[str, str]] = []

    @property
    def value(self) -> JobState:
        assert self.log.state is not None
        return self.log.state

    def store(self, role: str, writer: str, step: JobState) -> None:
        self.clock += 1.0
        self.log.take(role, writer, step, self.clock)

    def observe(self, host: Host, *, gone: bool, fits: bool = True) -> None:
        state = self.known[host.name]
        if step := next_step(state, host.view(state, gone=gone, fits=fits)):
            self.fly(host, lambda: self.store("work", host.name, step))

    def act(self, host: Host) -> None:
        """Act by what the box has read. Its own step to started is in the log then."""
        state = self.known[host.name]
        deed = next_deed(state, host.view(state, gone=False, fits=True))
        session = session_of(JOB, state.attempt)
        if deed is not None:
            self.fly(host, lambda: self.obey(host, deed, session))

    def fly(self, host: Host, what: Callable[[], None]) -> None:
        self.flying.append((host, host.life, what))

    def obey(self, host: Host, deed: str, session: str) -> None:
        """The daemon does what it is asked for: the prompt's key is known, a closed session refuses."""
        if session not in host.sessions:
            host.sessions[session] = "open" if deed == "start" else "refused"
            if deed == "start":
                self.starts.append((host.incarnation, session))

    def arrive(self, number: int, *, again: bool) -> None:
        if self.flying:
            index = number % len(self.flying)
            host, life, what = self.flying[index] if again else self.flying.pop(index)
            if host.life == life:  # nothing of a box survives its disk
                what()

    def happen(self, what: str, number: int) -> None:
        host = self.hosts[number % 3]
        match what:
            case "read":
                self.known[host.name] = self.value
            case "observe":
                self.observe(host, gone=number >= 6, fits=number != 4)
            case "act":
                self.act(host)
            case "arrive":
                self.arrive(number, again=number > 7)
            case "later":
                self.clock += 15.0
            case "drop":
                del self.flying[-1:]
            case "end":
                host.sessions.update({k: "ended" for k, v in host.sessions.items() if v == "open"})
            case "wipe":
                host.life, host.sessions = host.life + 1, {}
            case "cancel" if self.value.status == "pending":
                step = cancel(self.value, "ci")
                self.fly(host, lambda: self.store("submit", "ci", step))

    def settle(self) -> None:
        """All boxes are there and nothing fails: only an incarnation that is no more is gone."""
        for _ in range(40):
            self.clock += 15.0
            for host in self.hosts:
                alive = {(each.name, each.incarnation) for each in self.hosts}
                self.happen("end", self.hosts.index(host))
                self.known[host.name] = self.value
                self.observe(host, gone=(self.value.box, self.value.incarnation) not in alive)
                self.act(host)
                while self.flying:
                    self.arrive(0, again=False)


HAPPENINGS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(["read", "observe", "arrive", "act", "arrive"]), st.integers(0, 8)),
        st.tuples(st.sampled_from(["observe", "later", "drop", "end", "wipe", "cancel"]), st.integers(0, 8)),
    ),
    min_size=20,
    max_size=80,
)


@given(happenings=HAPPENINGS, on_lost=st.sampled_from(["wait", "rerun"]))
@settings(max_examples=500)
def test_no_job_is_started_twice_without_leave(happenings: list[tuple[str, int]], on_lost: str) -> None:
    fleet = Fleet(on_lost)
    for what, number in happenings:
        fleet.happen(what, number)
    fleet.settle()
    assert len(set(fleet.starts)) == len(fleet.starts) <= fleet.value.attempt
    assert on_lost == "rerun" or len(fleet.starts) <= 1
    holders = {host.incarnation for host in fleet.hosts}
    over = fleet.value.status in ("done", "cancelled") or fleet.value.attempt >= fleet.value.runs
    assert over or fleet.value.incarnation not in holders
    assert fleet.value.status != "done" or fleet.starts
