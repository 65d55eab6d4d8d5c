"""Jobs of the fleet: their steps, who may make them, and which box takes one. Pure.

The state of a job is a log in the engine. Each member writes its steps under its own subject, which no other member may
write, and the engine keeps one order of all steps. `clisup.fleet.job_log` folds the log: it takes a legal step of a legal writer,
and ignores every other one. So all readers have the same state, and no message of one box changes what another box did.
A box starts a job only after it has read its own step `started` in the log, so the order of the log decides between two
boxes. No job is started twice without leave (`on_lost = "rerun"`).

    (none)  -> pending             its submitter
    pending -> claimed             a box; of two claims the first one in the log
    claimed -> started             its box
    claimed -> pending             its box gives it back
    claimed -> claimed             another box, if no start followed the claim for 20 s
    started -> done                its box
    started -> lost                another box, which hears no beat of its box
    lost    -> started, done       its box is back
    lost    -> pending             its box is back, and refuses the prompt, which it never accepted
    lost    -> claimed             another box, with leave, if its box says nothing for 20 s
    pending -> cancelled           its submitter

`done` and `cancelled` are final. No box starts a job after `not_after`, or more than `runs` times.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple
from uuid import UUID, uuid5

import msgspec
from msgspec.structs import replace

from clisup.errors import ConfigurationError, UsageError, WorldError
from clisup.fleet.chain import subject_token
from clisup.policy.versions import in_range

__all__ = [
    "BoxFacts",
    "BoxView",
    "HeardBeats",
    "JobRequest",
    "JobState",
    "OwnTurn",
    "cancel",
    "claim_delay",
    "job_id",
    "misfit",
    "next_deed",
    "next_step",
    "read_request",
    "read_state",
    "request_subject",
    "session_of",
    "write_state",
]

BEAT_S, GONE_S = 5.0, 20.0
"""Seconds between two beats of a box, and without a beat until a box counts as gone."""
_NAMESPACE = UUID("6f0cf4b5-5b0e-5a53-8f0a-6b1d6a4a7c1e")
START_S = 7 * 86_400.0
"""Seconds after a job's submission for which boxes start it, unless it says less."""
RUNS = 5
"""Starts of a job, unless it says less or more. A start that its daemon refused counts, too."""
_CLAIM_S = 0.05

OnLost = Literal["wait", "rerun"]
JobStatus = Literal["pending", "claimed", "started", "done", "lost", "cancelled", "expired"]
"""Status of a job. No step says `expired`: so a client shows a job that no box will start any more."""
OwnTurn = Literal["absent", "refused", "open", "ended"]
"""State of a job's prompt in a box's own daemon: not known; never accepted, in a closed session; accepted; ended.

`refused` is more than `absent`: the closed session refuses a prompt that is still under way to the daemon.
"""


SESSION_PARAMS = frozenset(
    {"approvals", "budget", "cli_tools", "labels", "mcp_config", "mode", "model", "permission_mode", "system_prompt"}
    | {"system_prompt_mode", "timeouts", "title", "worktree"}
)
"""Params of `session/new` that a job may set. Variables and a client's own tools do not leave a box."""
TURN_PARAMS = frozenset({"expand", "output_schema", "timeout_s", "when_limited"})
"""Params of `session/prompt` that a job may set."""


class JobRequest(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Request of a job, written once by its submitter. `needs` are labels; an empty value accepts any value.

    `session` and `turn` are further params of `session/new` and `session/prompt`. No box starts the job after the time
    `not_after`, in seconds since the epoch (0: `START_S` after its submission), or more than `runs` times.
    """

    job: str
    submitter: str
    prompt: str
    backend: str
    versions: str = ""
    cwd: str | None = None
    workspace: str | None = None
    box: str | None = None
    needs: dict[str, str] = {}
    on_lost: OnLost = "wait"
    session: dict[str, Any] = {}
    turn: dict[str, Any] = {}
    not_after: float = 0.0
    runs: int = RUNS

    @property
    def first_state(self) -> JobState:
        """Return the first step of the job's log, which its submitter writes."""
        return JobState(
            submitter=self.submitter,
            on_lost=self.on_lost,
            for_box=self.box or "",
            not_after=self.not_after,
            runs=self.runs,
        )

    @property
    def foreign(self) -> str:
        """Return the name of a param that no job may set, or ""."""
        return min((self.session.keys() - SESSION_PARAMS) | (self.turn.keys() - TURN_PARAMS), default="")


class JobState(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a job, and step of a job's log. `box` and `incarnation` name its holder; `attempt` counts the starts.

    A `late` end was reported after the job had been lost. `error` says why the daemon refused the job, or why its turn
    failed. `for_box`, `not_after` and `runs` are those of the request. A clisup that does not know a field drops it.
    """

    status: JobStatus = "pending"
    submitter: str = ""
    on_lost: OnLost = "wait"
    box: str = ""
    incarnation: str = ""
    attempt: int = 0
    outcome: str = ""
    late: bool = False
    error: str = ""
    for_box: str = ""
    not_after: float = 0.0
    runs: int = RUNS

    def is_stale(self, now: float) -> bool:
        """Tell whether no box will start this job any more. `now` is a time of day, and may differ from the engine's."""
        waits = self.status in ("pending", "claimed")
        return waits and (now > self.not_after + 2 * GONE_S or self.attempt >= self.runs)


class BoxFacts(NamedTuple):
    """Facts of a box that decide whether it may take a job.

    `versions` are the installed backends. `held` are the backends whose account waits for the end of a limit.
    `directories` and `workspaces` exist on the box; the caller checks those that the request names. `accept` are the
    submitters from whom the box takes jobs.
    """

    box: str
    accept: Collection[str]
    free: int
    labels: Mapping[str, str] = {}
    versions: Mapping[str, str] = {}
    held: Collection[str] = ()
    directories: Collection[str] = ()
    workspaces: Collection[str] = ()


class BoxView(NamedTuple):
    """View that a box has of one job. `fits`: the box may take it. `turn`: the present attempt in its own daemon.

    `outcome` and `error` are those of a turn that ended. `holder_gone`: the job's holder is gone (`HeardBeats.is_gone`).
    `is_silent`: the last step is so old that another box may take the job. `was_away`: this box itself was away of late.
    """

    box: str
    incarnation: str
    fits: bool = False
    turn: OwnTurn = "absent"
    outcome: str = ""
    error: str = ""
    holder_gone: bool = False
    is_silent: bool = False
    was_away: bool = False


# -- names ------------------------------------------------------------------------------------------------------------


def job_id(submitter: str, key: str) -> str:
    """Return the id of a job. The same submitter and key give the same job, so a submit may be repeated."""
    return str(uuid5(_NAMESPACE, f"{submitter}\n{key}"))


def session_of(job: str, attempt: int) -> str:
    """Return the id of the session in which a job's attempt runs. The prompt's key in it is the job's id."""
    return str(uuid5(UUID(job), str(attempt)))


def request_subject(submitter: str, job: str) -> str:
    """Return the subject of a job's request."""
    return f"clisup.job.{subject_token(submitter)}.{subject_token(job)}"


def read_request(subject: str, value: bytes) -> JobRequest:
    """Return a stored request. Raises `WorldError` for a value that is none, or that is not of the subject's submitter.

    The engine lets each member write only under its own name, so the subject proves the submitter.
    """
    try:
        request = msgspec.json.decode(value, type=JobRequest)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _unreadable("the request of a job", error) from None
    try:
        UUID(request.job)
    except ValueError as error:
        raise _unreadable("the request of a job", error) from None
    if request.foreign:
        message = f"cannot run this job, because no job may set {request.foreign[:64]!r}"
        raise WorldError(message, kind="permission_denied")
    if subject != f"clisup.job.{request.submitter}.{request.job}":
        message = f"cannot run this job, because it names another submitter or job than its subject {subject!r}"
        raise WorldError(message, kind="permission_denied")
    return request


def read_state(value: bytes) -> JobState:
    """Return a stored state. Raises `WorldError` for a value that is none, such as one of a later clisup."""
    try:
        return msgspec.json.decode(value, type=JobState)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _unreadable("the state of a job", error) from None


def write_state(state: JobState) -> bytes:
    """Return the value to store."""
    return msgspec.json.encode(state)


def _unreadable(what: str, error: Exception) -> WorldError:
    message = f"cannot read {what}, because {str(error)[:200]}"
    return WorldError(message, kind="storage_failed", hint="upgrade clisup on this box")


# -- the steps of a box -----------------------------------------------------------------------------------------------


def next_step(state: JobState, view: BoxView) -> JobState | None:
    """Return the step that this box may write next, or None if the state is not this box's to change now."""
    mine = (state.box, state.incarnation) == (view.box, view.incarnation)
    return _own(state, view) if mine else _others(state, view)


def _own(state: JobState, view: BoxView) -> JobState | None:
    match state.status:
        case "pending":
            return _claim(state, view)
        case "claimed" if not view.fits:
            return replace(state, status="pending")
        case "claimed":
            return replace(state, status="started", attempt=state.attempt + 1)
        case "started" | "lost" if view.turn == "ended":
            late = state.status == "lost" and view.was_away
            return replace(state, status="done", outcome=view.outcome, late=late, error=view.error)
        case "started" | "lost" if view.turn == "refused":
            return replace(state, status="pending")
        case "lost" if view.turn == "open":
            return replace(state, status="started", late=view.was_away)
    return None


def _others(state: JobState, view: BoxView) -> JobState | None:
    free = state.status in ("claimed", "lost") and view.is_silent
    match state.status:
        case "pending":
            return _claim(state, view)
        case "claimed" if free and view.holder_gone:
            return _claim(state, view)
        case "lost" if free and view.holder_gone and state.on_lost == "rerun":
            return _claim(state, view)
        case "started" if view.holder_gone:
            return replace(state, status="lost", box=view.box, incarnation=view.incarnation)
    return None


def _claim(state: JobState, view: BoxView) -> JobState | None:
    if not view.fits:
        return None
    return replace(state, status="claimed", box=view.box, incarnation=view.incarnation)


def next_deed(state: JobState, view: BoxView) -> Literal["start", "refuse"] | None:
    """Return what this box asks of its own daemon now. Every deed may be repeated: session and prompt have fixed ids.

    `start`: open the attempt's session and send the prompt. `refuse`: open that session and close it, so that a prompt
    still under way is refused; then the job may go back.
    """
    mine = (state.box, state.incarnation) == (view.box, view.incarnation)
    if not mine or view.turn != "absent":
        return None
    return {"started": "start", "lost": "refuse"}.get(state.status)  # type: ignore[return-value]


def cancel(state: JobState, submitter: str) -> JobState:
    """Return the step that cancels a pending job. Raises `UsageError` for another's job, or for one that is not pending."""
    if state.submitter != submitter:
        raise UsageError(f"cannot cancel this job, because {state.submitter} submitted it", kind="permission_denied")
    if state.status != "pending":
        hint = "interrupt its session: clisup interrupt" if state.status in ("claimed", "started") else ""
        raise UsageError(f"cannot cancel this job, because it is {state.status}", hint=hint)
    return replace(state, status="cancelled")


class HeardBeats:
    """Beats of all boxes as one observer heard them. Times are the observer's own monotonic clock.

    An observer that does not hear its own beat is cut off itself, and declares no box gone. Its patience with the others
    begins again when it hears its own beat again.
    """

    __slots__ = ("_began", "_heard", "_me", "_own")

    def __init__(self, me: str) -> None:
        self._me = me
        self._heard: dict[str, tuple[str, float]] = {}
        self._began = self._own = float("-inf")

    def hear(self, box: str, incarnation: str, now: float) -> None:
        """Note a beat."""
        self._heard[box] = (incarnation, now)
        if box == self._me:
            if now - self._own > 2 * BEAT_S:
                self._began = now
            self._own = now

    def was_away(self, now: float) -> bool:
        """Tell whether this observer has not heard its own beats all the time of late."""
        return now - self._own > 2 * BEAT_S or now - self._began <= GONE_S

    def is_gone(self, box: str, incarnation: str, now: float) -> bool:
        """Tell whether a holder is gone: not heard of for `GONE_S`, or back with another incarnation."""
        if now - self._own > 2 * BEAT_S:
            return False
        present, at = self._heard.get(box, (incarnation, self._began))
        return present != incarnation or now - max(at, self._began) > GONE_S


# -- placement --------------------------------------------------------------------------------------------------------


def misfit(request: JobRequest, facts: BoxFacts) -> str:
    """Return why a box does not take a job, or "" for a box that may."""
    if request.box is not None and request.box != facts.box:
        return f"the job is for {request.box}"
    if request.submitter not in facts.accept:
        return f"{facts.box} accepts no jobs of {request.submitter}"
    for name, value in request.needs.items():
        if name not in facts.labels or value not in ("", facts.labels[name]):
            return f"{facts.box} has no label {name}={value}" if value else f"{facts.box} has no label {name}"
    return _unfit_backend(request, facts) or _unfit_place(request, facts) or ("" if facts.free > 0 else "no free slot")


def _unfit_backend(request: JobRequest, facts: BoxFacts) -> str:
    version = facts.versions.get(request.backend)
    if version is None:
        return f"{facts.box} has no backend {request.backend}"
    try:
        if not in_range(version, request.versions):
            return f"{request.backend} is {version} on {facts.box}, and the job needs {request.versions}"
    except ConfigurationError as error:
        return error.message
    return f"the account of {request.backend} is limited" if request.backend in facts.held else ""


def _unfit_place(request: JobRequest, facts: BoxFacts) -> str:
    if request.cwd is not None and request.cwd not in facts.directories:
        return f"{facts.box} has no directory {request.cwd}"
    if request.workspace is not None and request.workspace not in facts.workspaces:
        return f"{facts.box} has no workspace {request.workspace}"
    return ""


def claim_delay(running: int, draw: float) -> float:
    """Return the seconds that a box waits before it claims: an idle box is faster. `draw` is random, 0 to 1."""
    return draw * _CLAIM_S * (1 + running)
