"""Jobs of the fleet: their states, who may change them, and which box takes one. Pure.

A state is one value in the engine, and is changed only by a swap against its revision. `next_swap` gives each box its
next swap, from the state and from what the box sees. A box starts a job only after its own swap to `started`, so the
engine decides between two boxes. No job is started twice without leave (`on_lost = "rerun"`).

    pending -> claimed -> started -> done
    claimed -> pending             its box is gone; the job cannot have begun
    started -> lost                its box is gone; with leave: pending
    lost    -> done                its box is back, and the turn has ended
    lost    -> pending             its box is back, and refuses the prompt, which it never accepted
    pending -> cancelled
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
    "JobSwap",
    "OwnTurn",
    "cancel",
    "claim_delay",
    "job_id",
    "misfit",
    "next_deed",
    "next_swap",
    "read_request",
    "read_state",
    "request_subject",
    "session_of",
    "write_state",
]

BEAT_S, GONE_S = 5.0, 20.0
"""Seconds between two beats of a box, and without a beat until a box counts as gone."""
_NAMESPACE = UUID("6f0cf4b5-5b0e-5a53-8f0a-6b1d6a4a7c1e")
_CLAIM_S = 0.05

OnLost = Literal["wait", "rerun"]
JobStatus = Literal["pending", "claimed", "started", "done", "lost", "cancelled"]
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

    `session` and `turn` are further params of `session/new` and `session/prompt`.
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

    @property
    def foreign(self) -> str:
        """Return the name of a param that no job may set, or ""."""
        return min((self.session.keys() - SESSION_PARAMS) | (self.turn.keys() - TURN_PARAMS), default="")


class JobState(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a job. `box` and `incarnation` name its holder; `attempt` counts the starts.

    A `late` end was reported after the job had been lost. `error` says why the daemon refused the job, or why its turn
    failed. A clisup that does not know a field drops it.
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


class JobSwap(NamedTuple):
    """Swap of a job's state, valid only against this revision."""

    revision: int
    state: JobState


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
    """

    box: str
    incarnation: str
    fits: bool = False
    turn: OwnTurn = "absent"
    outcome: str = ""
    error: str = ""
    holder_gone: bool = False


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


# -- states -----------------------------------------------------------------------------------------------------------


def next_swap(state: JobState, revision: int, view: BoxView) -> JobSwap | None:
    """Return the swap that this box may try next, or None if the state is not this box's to change now."""
    mine = (state.box, state.incarnation) == (view.box, view.incarnation)
    after = _own(state, view) if mine else _others(state, view)
    return None if after is None else JobSwap(revision, after)


def _own(state: JobState, view: BoxView) -> JobState | None:
    match state.status:
        case "pending":
            return _claimed(state, view)
        case "claimed":
            return replace(state, status="started", attempt=state.attempt + 1)
        case "started" | "lost" if view.turn == "ended":
            return replace(state, status="done", outcome=view.outcome, late=state.status == "lost", error=view.error)
        case "started" | "lost" if view.turn == "refused":
            return _free(state)
    return None


def _others(state: JobState, view: BoxView) -> JobState | None:
    match state.status:
        case "pending":
            return _claimed(state, view)
        case "claimed" if view.holder_gone:
            return _free(state)
        case "started" if view.holder_gone:
            return _free(state) if state.on_lost == "rerun" else replace(state, status="lost")
    return None


def _claimed(state: JobState, view: BoxView) -> JobState | None:
    if not view.fits:
        return None
    return replace(state, status="claimed", box=view.box, incarnation=view.incarnation)


def _free(state: JobState) -> JobState:
    return replace(state, status="pending", box="", incarnation="")


def next_deed(state: JobState, view: BoxView) -> Literal["start", "refuse"] | None:
    """Return what this box asks of its own daemon now. Every deed may be repeated: session and prompt have fixed ids.

    `start`: open the attempt's session and send the prompt. `refuse`: open that session and close it, so that a prompt
    still under way is refused; then the job may go back.
    """
    mine = (state.box, state.incarnation) == (view.box, view.incarnation)
    if not mine or view.turn != "absent":
        return None
    return {"started": "start", "lost": "refuse"}.get(state.status)  # type: ignore[return-value]


def cancel(state: JobState, revision: int, submitter: str) -> JobSwap:
    """Return the swap that cancels a pending job. Raises `UsageError` for another's job, or for one that is not pending."""
    if state.submitter != submitter:
        raise UsageError(f"cannot cancel this job, because {state.submitter} submitted it", kind="permission_denied")
    if state.status != "pending":
        hint = "interrupt its session: clisup interrupt" if state.status in ("claimed", "started") else ""
        raise UsageError(f"cannot cancel this job, because it is {state.status}", hint=hint)
    return JobSwap(revision, replace(state, status="cancelled"))


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
