"""The desk of a session's approvals: what its CLI asks, the rules' word on it, and the first answer of a client.

What is open is in the ledger, so it outlives the daemon. `attend` is the one task that decides, one approval after the other,
for as long as a run lasts: the rules when the CLI asks (and again where a daemon takes up a question that a daemon before it
left open), then clients in the order in which they come, then the absence of all of them. A decision is journaled with what
is said to the CLI; the keeper says it once.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
import trio
from msgspec.structs import replace

from clisup.backends.base import ApprovalAnswer
from clisup.daemon.notification import Wake
from clisup.daemon.sessions.recorder import Item
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host import clock
from clisup.host.failpoints import failpoint
from clisup.host.real_paths import real_paths
from clisup.model.events import Actor, ApprovalRequested, ApprovalResolved, ResolvedBy, TurnCompleted
from clisup.model.sessions.ledger import Turn
from clisup.policy.approval_rules import Asked, Judgement, judge, paths_of

if TYPE_CHECKING:
    from clisup.daemon.runs.run import Run
    from clisup.daemon.sessions.registry import Manager
    from clisup.daemon.sessions.session import Session

__all__ = ["ApprovalDesk", "find_asking", "with_denied"]

ATTENDANCE_LOOK_S = 1.0  # how often somebody's being there is looked at, and only while that can decide something
RULES_LIMIT_S = 20.0  # a question that was journaled, and is not heard again by then, is none any more
PATHS_LIMIT_S = 5.0  # for following links on a slow disk
_BY_RULE = "A rule of the supervisor forbids this."
_BY_ABSENCE = "Nobody is there who could allow this."
_log = structlog.get_logger()


@dataclass(eq=False)
class _Given:
    """A client's answer on its way."""

    approval_id: str
    answer: ApprovalAnswer
    actor: Actor
    done: trio.Event = field(default_factory=trio.Event)
    error: ClisupError | None = None
    at: float = field(default_factory=clock.monotonic)

    def settle(self, error: ClisupError | None) -> None:
        self.error = error
        self.done.set()


class ApprovalDesk:
    """One session's. A run that asks has `attend` running."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._asked: dict[str, ApprovalRequested] = {}  # not judged yet
        self._since: dict[str, float] = {}  # when each open one was asked, or last seen with somebody there
        self._given: list[_Given] = []  # no deque: an empty one takes 0.6 KB
        self._wake = Wake()
        self._heard_at = 0.0  # since when all is known that the CLI had said to a daemon before this one

    # -- what is open ------------------------------------------------------------------------------------------------

    @property
    def open(self) -> dict[str, dict[str, Any]]:
        """The open approvals of the running turn by id: seq, tool_name, at."""
        turn = self._session.ledger.held
        return turn.approvals if turn is not None else {}

    def describe(self) -> Iterator[dict[str, Any]]:
        """The open approvals, for `approval/list`."""
        for approval_id, entry in list(self.open.items()):
            event = self._session.recorder.event(entry["seq"]) or {}  # retention may have removed it
            yield {
                "approval_id": approval_id,
                "session_id": self._session.id,
                "turn_id": event.get("turn_id"),
                "tool_name": entry["tool_name"],
                "input": event.get("input", {}),
                "suggestions": event.get("suggestions", []),
                "requested_at": entry["at"],
                "seq": entry["seq"],
                **{name: event[name] for name in ("tool_use_id", "reason", "blob") if event.get(name)},
            }

    def check(self, approval_id: str) -> None:
        """Raises `UsageError`: approval_already_resolved (with the decision), approval_not_found."""
        if approval_id in self.open:
            return
        was = self._session.ledger.resolved.get(approval_id)
        if was is not None:
            raise UsageError(
                f"cannot answer approval {approval_id}, because it was resolved already: {was['decision']}",
                kind="approval_already_resolved",
                hint="nothing is left to do",
                **was,
            )
        raise UsageError(
            f"cannot find the approval {approval_id} in session {self._session.id}",
            kind="approval_not_found",
            hint="see approval/list, or clisup approvals",
        )

    # -- what clients say --------------------------------------------------------------------------------------------

    async def respond(self, approval_id: str, answer: ApprovalAnswer, actor: Actor) -> None:
        """Answer for a client; it returns when the answer is journaled, and will be heard by the CLI whatever dies then.

        Raises `UsageError`: approval_not_found, approval_already_resolved, unsupported; `WorldError(shutting_down)`.
        """
        self.check(approval_id)
        given = _Given(approval_id, answer, actor)
        self._given.append(given)
        self._wake.set()
        await given.done.wait()  # a client that goes away meanwhile has answered all the same
        if given.error is not None:
            raise given.error

    def leave(self) -> None:
        """The daemon goes: whoever waits here learns that its answer was not taken."""
        error = WorldError(
            "cannot take the answer, because the daemon is stopping",
            kind="shutting_down",
            hint="see approval/list, or clisup approvals, after the restart",
        )
        while self._given:
            self._given.pop(0).settle(error)

    # -- what the run says -------------------------------------------------------------------------------------------

    def asked(self, event: ApprovalRequested) -> None:
        """The CLI asks, and it is journaled; or it asked a daemon before this one, and is still waiting."""
        self._asked[event.approval_id] = event
        self._since[event.approval_id] = clock.monotonic()
        self._wake.set()

    def cancelled(self, by: ResolvedBy, actor: Actor | None = None) -> list[Item]:
        """What resolves everything that is open, where the CLI does not wait any longer; to be journaled."""
        turn = self._session.ledger.held
        self._asked.clear()
        self._since.clear()
        self._wake.set()
        return [
            Item(
                ApprovalResolved(
                    approval_id=approval_id, tool_name=entry["tool_name"], decision="cancelled", by=by, actor=actor
                ),
                turn.id if turn else None,
            )
            for approval_id, entry in self.open.items()
        ]

    def and_gone(self, end: Item) -> list[Item]:
        """The end of a run or a turn, and before it of all that it leaves open: for one write."""
        return [*self.cancelled("exit"), end]

    def over(self) -> None:
        """No run is there any more: answers that came too late learn it."""
        while self._given:
            self._refuse(self._given.pop(0))

    async def attend(self, run: Run) -> None:
        """Decide what there is to decide, until cancelled. A fault in here ends the turn; it never allows."""
        await run.asking.ready()
        self._heard_at = clock.monotonic()
        while True:
            self._wake.begin()
            for event in list(self._asked.values()):
                await self._judge(run, event)
            for given in list(self._given):
                if not self._is_for_rules(given):
                    await self._take(run, given)
                    if given in self._given:  # `leave` may have answered it
                        self._given.remove(given)
            pause = await self._look_for_people(run)
            if self._given:
                pause = min(pause, ATTENDANCE_LOOK_S)
            with trio.move_on_after(pause):
                await self._wake.wait()

    def _is_for_rules(self, given: _Given) -> bool:
        """Have the rules still to speak of it? An answer that is faster than they are must not pass a deny of the operator's."""
        judged = given.approval_id in self._since and given.approval_id not in self._asked
        late = clock.monotonic() - max(given.at, self._heard_at) >= RULES_LIMIT_S
        return given.approval_id in self.open and not judged and not late

    # -- deciding ----------------------------------------------------------------------------------------------------

    async def _judge(self, run: Run, event: ApprovalRequested) -> None:
        word = await self._rules_say(event)
        if self._asked.pop(event.approval_id, None) is None or word.decision == "ask":
            return
        allow = word.decision == "allow"
        answer = ApprovalAnswer("allow") if allow else ApprovalAnswer("deny", message=_BY_RULE)
        try:
            await self._settle(run, event.approval_id, answer, by="rule", rule=word.rule)
        except UsageError as error:
            if error.kind != "unsupported":
                return  # the CLI has taken it back meanwhile
            _log.warning("approval rule not sayable", session=self._session.id, kind=error.kind)
            why = f"{word.rule}: {error.message}"
            denied = ApprovalAnswer("deny", message=_BY_RULE)
            with suppress(UsageError):  # as above
                await self._settle(run, event.approval_id, denied, by="rule", rule=why)

    async def _rules_say(self, event: ApprovalRequested) -> Judgement:
        session, backend = self._session.spec.approvals.rules, self._session.backend.config.approvals.rules
        cwd = self._session.spec.cwd
        asked = Asked(event.tool_name, event.input, cwd)
        try:
            if any(rule.path is not None for rule in (*session, *backend)) and (paths := _readable(event)):
                with trio.fail_after(PATHS_LIMIT_S):
                    real, real_cwd = await trio.to_thread.run_sync(real_paths, paths, cwd, abandon_on_cancel=True)
                asked = asked._replace(real=real, real_cwd=real_cwd)
        except (OSError, ValueError, trio.TooSlowError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__  # no path: it is of the tool's input
            _log.warning("approval paths not followed", session=self._session.id, error=why)
            return Judgement("deny", "error: its paths could not be followed")
        return judge(asked, session, backend)

    async def _take(self, run: Run, given: _Given) -> None:
        try:
            if given.approval_id in self.open and given.approval_id not in self._since:
                raise self._gone(given.approval_id)  # this daemon has not heard the CLI ask
            await self._settle(run, given.approval_id, given.answer, by="client", actor=given.actor)
        except ClisupError as error:
            given.settle(error)
        else:
            given.settle(None)

    def _refuse(self, given: _Given) -> None:
        try:
            self.check(given.approval_id)
        except UsageError as error:
            given.settle(error)
        else:
            given.settle(self._gone(given.approval_id))

    async def _settle(self, run: Run, approval_id: str, answer: ApprovalAnswer, *, by: ResolvedBy, **more: Any) -> None:
        """Journal the decision and say it. Raises `UsageError`: approval_not_found, approval_already_resolved, unsupported."""
        await run.asking.ready()  # all that the CLI said before is known again
        self.check(approval_id)
        text = run.asking.word(approval_id, answer)
        if text is None:
            raise self._gone(approval_id)
        resolved = ApprovalResolved(
            approval_id=approval_id,
            tool_name=self.open[approval_id]["tool_name"],
            decision=answer.decision,
            by=by,
            message=answer.message,
            remember=True if answer.remember else None,
            input_changed=True if answer.updated_input is not None else None,
            **more,
        )
        failpoint("approval.before")
        turn = self._session.ledger.held
        item = Item(resolved, turn.id if turn else None)
        if not await run.say(text, item, lambda: approval_id in self.open):
            self.check(approval_id)
            raise self._gone(approval_id)
        run.asking.resolved(resolved)
        failpoint("approval.after")
        self._since.pop(approval_id, None)

    def _gone(self, approval_id: str) -> UsageError:
        return UsageError(
            f"cannot answer approval {approval_id}, because the CLI does not wait for it any longer",
            kind="approval_not_found",
            hint="see approval/list, or clisup approvals",
        )

    async def _look_for_people(self, run: Run) -> float:
        """Deny what waits while nobody is there, where that is the policy; the seconds until that is to be looked at again."""
        configured = self._session.backend.config.approvals
        policy = self._session.spec.approvals.unattended or configured.unattended
        if policy == "wait" or not self.open:
            return float("inf")
        now, after = clock.monotonic(), configured.unattended_after_s
        for approval_id in [name for name in self.open if name in self._since]:
            if self._session.recorder.followers:
                self._since[approval_id] = now
            elif now - self._since[approval_id] >= after:
                answer = ApprovalAnswer("deny", message=_BY_ABSENCE)
                try:
                    await self._settle(run, approval_id, answer, by="unattended")
                except UsageError:
                    self._since.pop(approval_id, None)  # the CLI has taken it back
        waits = [self._since.get(approval_id, now) + after - now for approval_id in self.open]
        return min([ATTENDANCE_LOOK_S, *(max(wait, 0.01) for wait in waits)])


def find_asking(manager: Manager, approval_id: str, session_id: str | None) -> Session:
    """The session whose approval that is. Without a `session_id` all are looked through.

    Raises `UsageError`: session_not_found, approval_not_found, approval_already_resolved, and invalid_params where several
    sessions have one of this id: some CLIs number their questions.
    """
    if session_id is not None:
        return manager.get(session_id)
    asking = [session for session in manager if approval_id in session.approvals.open]
    if len(asking) == 1:
        return asking[0]
    if asking:
        raise UsageError(
            f"cannot tell which approval {approval_id} is meant, because {len(asking)} sessions have one of this id",
            hint="give its session_id",
            sessions=[session.id for session in asking],
        )
    known = next((session for session in manager if approval_id in session.ledger.resolved), None)
    if known is not None:
        known.approvals.check(approval_id)
    raise UsageError(
        f"cannot find the approval {approval_id} in any session",
        kind="approval_not_found",
        hint="see approval/list, or clisup approvals",
    )


def with_denied(done: TurnCompleted, turn_id: str | None, turn: Turn | None) -> TurnCompleted:
    """A turn's end also names the tools that were asked for and not allowed: not every CLI tells them again."""
    if turn is None or turn.id != turn_id or not turn.denied:
        return done
    return replace(done, denied=tuple(dict.fromkeys((*done.denied, *turn.denied))))


def _readable(event: ApprovalRequested) -> list[str]:
    """The paths that the rules are going to see; what cannot be read as one, they judge by themselves."""
    try:
        return [path for path in paths_of(event.input) if not path.startswith("~")]
    except ValueError:
        return []
