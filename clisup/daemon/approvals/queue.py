"""Approvals of a session: requests of the CLI, and their decisions by rules, clients or the policy without clients.

The open approvals are in the ledger and outlive the daemon. For each run a task, `serve`, decides the approvals in
order. The rules come first, also for requests that an earlier daemon left open. Clients come next, in the order of the
answers, then the policy for unattended sessions. The daemon journals a decision together with the reply to the CLI, and
the keeper delivers the reply once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import trio

from clisup.backends.base import ApprovalAnswer
from clisup.daemon.journal.recorder import Item
from clisup.daemon.runs.run import Run
from clisup.daemon.sessions.context import Notification, SessionContext
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.host import clock
from clisup.host.failpoints import failpoint
from clisup.host.log import event_logger
from clisup.host.safe_paths import real_paths
from clisup.host.threads import in_thread
from clisup.model.events import Actor, ApprovalRequested, ApprovalResolved, ResolvedBy
from clisup.model.sessions.turn_state import ApprovalEntry
from clisup.policy.approval_rules import Judgement, ToolQuestion, judge, paths_of
from clisup.policy.spill import is_over

__all__ = ["ApprovalQueue"]

ATTENDANCE_CHECK_S = 1.0  # pause between two checks for followers, while the lack of followers can decide an approval
RULES_LIMIT_S = 20.0  # time for the CLI to repeat a journaled request to this daemon
JUDGED_AT_ONCE = 16 * 1024  # characters of an input; the rules read a longer one in a thread, up to half a second
PATHS_LIMIT_S = 5.0  # time to resolve links on a slow disk
_BY_RULE = "A rule of the supervisor forbids this."
_BY_ABSENCE = "Nobody is there who could allow this."
_log = event_logger()


@dataclass(eq=False)
class _ClientAnswer:
    """Not yet applied answer of a client."""

    approval_id: str
    answer: ApprovalAnswer
    actor: Actor
    done: trio.Event = field(default_factory=trio.Event)
    error: ClisupError | None = None
    at: float = field(default_factory=clock.monotonic)

    def finish(self, error: ClisupError | None) -> None:
        self.error = error
        self.done.set()


class ApprovalQueue:
    """Approvals of a session. `serve` runs beside each run."""

    def __init__(self, context: SessionContext) -> None:
        self._context = context
        self._unjudged: dict[str, ApprovalRequested] = {}
        self._since: dict[str, float] = {}  # by approval: time of the request, or of the last check with a follower
        self._answers: deque[_ClientAnswer] = deque()
        self._news = Notification()
        self._caught_up_at = 0.0  # from this time on, all requests to an earlier daemon are known

    # -- open approvals ----------------------------------------------------------------------------------------------

    @property
    def open(self) -> dict[str, ApprovalEntry]:
        """Return the open approvals of the running turn by id."""
        turn = self._context.ledger.active_turn
        return turn.approvals if turn is not None else {}

    def describe(self) -> Iterator[dict[str, Any]]:
        """Yield the open approvals in the form of `approval/list`."""
        for approval_id, entry in list(self.open.items()):
            event = self._context.recorder.event(entry["seq"]) or {}  # retention may have removed the event
            yield {
                "approval_id": approval_id,
                "session_id": self._context.id,
                "title": self._context.title,
                "backend": self._context.spec.backend,
                "cwd": self._context.spec.cwd,
                "turn_id": event.get("turn_id"),
                "tool_name": entry["tool_name"],
                "input": event.get("input", {}),
                "suggestions": event.get("suggestions", []),
                "requested_at": entry["at"],
                "seq": entry["seq"],
                **{name: event[name] for name in ("tool_use_id", "reason", "blob") if event.get(name)},
            }

    def check(self, approval_id: str) -> None:
        """Raise `UsageError`: approval_already_resolved (with the decision), approval_not_found."""
        if approval_id in self.open:
            return
        was = self._context.ledger.resolved.get(approval_id)
        if was is not None:
            raise UsageError(
                f"approval {approval_id} is already resolved: {was['decision']}",
                kind="approval_already_resolved",
                hint="nothing is left to do",
                **was,
            )
        raise UsageError(
            f"approval {approval_id} not found in session {self._context.id}",
            kind="approval_not_found",
            hint="see approval/list, or clisup approvals",
        )

    # -- answers of clients ------------------------------------------------------------------------------------------

    async def respond(self, approval_id: str, answer: ApprovalAnswer, actor: Actor) -> None:
        """Apply a client's answer. Return when the answer is journaled: then it reaches the CLI, even after a crash.

        Raises `UsageError`: approval_not_found, approval_already_resolved, option_needed, unsupported; `WorldError(shutting_down)`.
        """
        self.check(approval_id)
        given = _ClientAnswer(approval_id, answer, actor)
        self._answers.append(given)
        self._news.notify()
        await given.done.wait()  # the answer counts even if its client disconnects meanwhile
        if given.error is not None:
            raise given.error

    def detach(self) -> None:
        """Refuse the waiting answers: the daemon stops."""
        error = WorldError(
            "the answer was not applied: the daemon is stopping",
            kind="shutting_down",
            hint="see approval/list, or clisup approvals, after the restart",
        )
        while self._answers:
            self._answers.popleft().finish(error)

    def refuse_answers(self) -> None:
        """Refuse the waiting answers: the run is over."""
        while self._answers:
            given = self._answers.popleft()
            try:
                self.check(given.approval_id)
            except UsageError as error:
                given.finish(error)
            else:
                given.finish(self._withdrawn(given.approval_id))

    # -- requests of the run -----------------------------------------------------------------------------------------

    def requested(self, event: ApprovalRequested) -> None:
        """Add a journaled request: a new request, or a request that an earlier daemon left open."""
        self._unjudged[event.approval_id] = event
        self._since[event.approval_id] = clock.monotonic()
        self._news.notify()

    def cancelled(self, by: ResolvedBy, actor: Actor | None = None) -> list[Item]:
        """Forget all requests, and return the journal items to resolve the open requests."""
        turn = self._context.ledger.active_turn
        self._unjudged.clear()
        self._since.clear()
        self._news.notify()
        return [
            Item(
                ApprovalResolved(
                    approval_id=approval_id, tool_name=entry["tool_name"], decision="cancelled", by=by, actor=actor
                ),
                turn.id if turn else None,
            )
            for approval_id, entry in self.open.items()
        ]

    def closed_with(self, end: Item) -> list[Item]:
        """Return the end of a run or turn after the ends of the open approvals, for a single write."""
        return [*self.cancelled("exit"), end]

    async def serve(self, run: Run) -> None:
        """Decide the run's approvals until cancelled. A fault of this task ends the turn and allows nothing."""
        await run.requests.ready()
        self._caught_up_at = clock.monotonic()
        while True:
            self._news.clear()
            for event in list(self._unjudged.values()):
                await self._judge(run, event)
            for given in list(self._answers):
                if not self._waits_for_rules(given):
                    await self._apply(run, given)
                    if given in self._answers:  # `detach` may have finished the answer
                        self._answers.remove(given)
            pause = await self._deny_unattended(run)
            if self._answers:
                pause = min(pause, ATTENDANCE_CHECK_S)
            with trio.move_on_after(pause):
                await self._news.wait()

    def _waits_for_rules(self, given: _ClientAnswer) -> bool:
        """Tell whether the rules come first: a fast answer must not bypass a deny rule of the operator."""
        judged = given.approval_id in self._since and given.approval_id not in self._unjudged
        late = clock.monotonic() - max(given.at, self._caught_up_at) >= RULES_LIMIT_S
        return given.approval_id in self.open and not judged and not late

    # -- decisions ---------------------------------------------------------------------------------------------------

    async def _judge(self, run: Run, event: ApprovalRequested) -> None:
        judgement = await self._judgement(event)
        if self._unjudged.pop(event.approval_id, None) is None or judgement.decision == "ask":
            return
        allow = judgement.decision == "allow"
        answer = ApprovalAnswer("allow", by_rule=True) if allow else ApprovalAnswer("deny", message=_BY_RULE)
        try:
            await self._resolve(run, event.approval_id, answer, by="rule", rule=judgement.rule)
        except UsageError as error:
            if error.kind != "unsupported":
                return  # the CLI has withdrawn the request, or a person has to choose
            _log.warning("approval rule not sayable", session=self._context.id, kind=error.kind)
            why = f"{judgement.rule}: {error.message}"
            denied = ApprovalAnswer("deny", message=_BY_RULE)
            with suppress(UsageError):  # the CLI has withdrawn the request
                await self._resolve(run, event.approval_id, denied, by="rule", rule=why)

    async def _judgement(self, event: ApprovalRequested) -> Judgement:
        session, backend = self._context.spec.approvals.rules, self._context.backend.config.approvals.rules
        cwd = self._context.spec.cwd
        asked = ToolQuestion(event.tool_name, event.input, cwd)
        try:
            if any(rule.path is not None for rule in (*session, *backend)) and (paths := _readable_paths(event)):
                with trio.fail_after(PATHS_LIMIT_S):
                    real, real_cwd = await in_thread(real_paths, paths, cwd, abandon_on_cancel=True)
                asked = asked._replace(real=real, real_cwd=real_cwd)
        except (OSError, ValueError, trio.TooSlowError) as error:
            why = getattr(error, "strerror", None) or type(error).__name__  # without the path: a path is tool input
            _log.warning("approval paths not followed", session=self._context.id, error=why)
            return Judgement("deny", "error: its paths could not be followed")
        if is_over(event.input, JUDGED_AT_ONCE):
            return await in_thread(judge, asked, session, backend)
        return judge(asked, session, backend)

    async def _apply(self, run: Run, given: _ClientAnswer) -> None:
        try:
            if given.approval_id in self.open and given.approval_id not in self._since:
                raise self._withdrawn(given.approval_id)  # the CLI has not repeated the request to this daemon
            await self._resolve(run, given.approval_id, given.answer, by="client", actor=given.actor)
        except ClisupError as error:
            given.finish(error)
        else:
            given.finish(None)

    async def _resolve(
        self, run: Run, approval_id: str, answer: ApprovalAnswer, *, by: ResolvedBy, **more: Any
    ) -> None:
        """Journal the decision and reply to the CLI.

        Raises `UsageError`: approval_not_found, approval_already_resolved, option_needed, unsupported.
        """
        await run.requests.ready()
        self.check(approval_id)
        text = run.requests.reply(approval_id, answer)
        if text is None:
            raise self._withdrawn(approval_id)
        resolved = ApprovalResolved(
            approval_id=approval_id,
            tool_name=self.open[approval_id]["tool_name"],
            decision=answer.decision,
            by=by,
            message=answer.message,
            remember=True if answer.remember else None,
            option=answer.option,
            input_changed=True if answer.updated_input is not None else None,
            **more,
        )
        failpoint("approval.before")
        turn = self._context.ledger.active_turn
        item = Item(resolved, turn.id if turn else None)
        if not await run.send(text, item, lambda: approval_id in self.open):
            self.check(approval_id)
            raise self._withdrawn(approval_id)
        run.requests.resolved(resolved)
        failpoint("approval.after")
        self._since.pop(approval_id, None)

    def _withdrawn(self, approval_id: str) -> UsageError:
        return UsageError(
            f"the CLI no longer waits for approval {approval_id}",
            kind="approval_not_found",
            hint="see approval/list, or clisup approvals",
        )

    async def _deny_unattended(self, run: Run) -> float:
        """Deny approvals that waited too long without a follower, if the policy says so. Return the seconds to the next check."""
        configured = self._context.backend.config.approvals
        policy = self._context.spec.approvals.unattended or configured.unattended
        if policy == "wait" or not self.open:
            return float("inf")
        now, after = clock.monotonic(), configured.unattended_after_s
        for approval_id in [name for name in self.open if name in self._since]:
            if self._context.recorder.followers:
                self._since[approval_id] = now
            elif now - self._since[approval_id] >= after:
                answer = ApprovalAnswer("deny", message=_BY_ABSENCE)
                try:
                    await self._resolve(run, approval_id, answer, by="unattended")
                except UsageError:
                    self._since.pop(approval_id, None)  # the CLI has withdrawn the request
        waits = [self._since.get(approval_id, now) + after - now for approval_id in self.open]
        return min([ATTENDANCE_CHECK_S, *(max(wait, 0.01) for wait in waits)])


def _readable_paths(event: ApprovalRequested) -> list[str]:
    """Return the paths of the input to resolve. The rules themselves judge an input with unreadable paths."""
    try:
        return [path for path in paths_of(event.input) if not path.startswith("~")]
    except ValueError:
        return []
