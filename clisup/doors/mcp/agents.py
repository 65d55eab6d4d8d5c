"""Tools of `clisup mcp`: each method is one tool, and its docstring and annotations are what the model reads of it.

The sessions belong to the daemon. An agent goes on when the MCP client, this process or the daemon ends.
"""

from __future__ import annotations

import uuid
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Annotated, Any, Literal, NamedTuple

import trio
from pydantic import BaseModel, Field

from clisup.client.aio import AsyncClient
from clisup.client.aio_session import AsyncSession
from clisup.client.answers import Answer
from clisup.client.events import ApprovalRequested
from clisup.client.nurseries import open_plain_nursery
from clisup.client.reconnect import new_key
from clisup.doors.mcp.bounds import (
    CLIENT_LABEL,
    DEPTH_LABEL,
    MAX_WAIT_S,
    OWN_BUDGET_LABEL,
    PARENT_LABEL,
    WAIT_S,
    AgentBounds,
    left_of,
    wait_within,
)
from clisup.doors.mcp.news import AgentNews, AgentRow, NewsFold, WaitingCall, asked_of, news_of
from clisup.errors import ClisupError, UsageError, WorldError
from clisup.wire.results import BackendInfo, SessionDetail, SessionSummary

__all__ = ["CALL", "AgentTools", "ToolCaller"]

TICK_S = 10.0
"""Seconds between two reports of progress while nothing happens. Some MCP clients wait longer while such reports come."""

MAX_ROWS = 50
_IDS = uuid.UUID("6b1f5f0e-6c1c-4d55-9f0e-2f1d4c9a7b35")  # the namespace of the session ids that are made from keys

Session = Annotated[str, Field(description="Id of a session, as start or sessions gave it.", max_length=64)]
Key = Annotated[str | None, Field(description="A name for this call: the same call with it again runs once.", max_length=256)]  # fmt: skip
Wait = Annotated[float, Field(description=f"Seconds to wait for news, at most {MAX_WAIT_S:g}.")]


class ToolCaller(NamedTuple):
    """Caller of a tool: the MCP client, or with `parent` a session that an agent has started.

    `key` is the same for a call that comes again. `report` shows a line of progress after so many of all seconds.
    """

    client: str = "agent"
    key: str | None = None
    parent: str | None = None
    report: Callable[[float, float, str], Awaitable[None]] | None = None


CALL: ContextVar[ToolCaller] = ContextVar("call")
"""The caller of the tool that runs."""


class StartableBackend(BaseModel):
    """Backend that an agent can be started on."""

    name: str
    version: str | None
    available: bool
    reason: str | None
    """Why it cannot run."""


class ToolDone(BaseModel):
    """Answer of a tool that has nothing to tell."""

    session: str
    done: str


class AgentTools:
    """Tools over one client of the daemon. Without a client, each tool fails with `problem`.

    `delegate` opens a session that may start further agents: it adds the tools to `session/new`, and serves them.
    """

    def __init__(
        self, client: AsyncClient | None, bounds: AgentBounds, delegate: Callable[..., Awaitable[AsyncSession]],
        problem: ClisupError | None = None,
    ) -> None:  # fmt: skip
        self._maybe_client, self._bounds, self._delegate, self._problem = client, bounds, delegate, problem
        self._opening = trio.Lock()  # two calls at once must not both take the last room

    @property
    def client(self) -> AsyncClient:
        if self._maybe_client is None:
            raise self._problem or WorldError("no daemon runs", kind="daemon_not_running", hint="run: clisup start")
        return self._maybe_client

    # -- the tools

    async def backends(self) -> list[StartableBackend]:
        """List the CLIs on which an agent can be started."""
        return [
            StartableBackend(name=b.name, version=b.version, available=b.unavailable_reason is None, reason=b.unavailable_reason)
            for b in await self.client.backends()
        ]  # fmt: skip

    async def start(
        self,
        backend: Annotated[str, Field(description="Name of a backend, as backends lists it.", max_length=64)],
        prompt: Annotated[str, Field(description="The whole task: the agent sees nothing else.", min_length=1)],
        cwd: Annotated[str | None, Field(description="Its directory; without it, this server's root.")] = None,
        model: Annotated[str | None, Field(description="Model; without it, the CLI's own default.")] = None,
        title: Annotated[str | None, Field(description="Title that people see in lists.", max_length=200)] = None,
        worktree: Annotated[
            bool, Field(description="Give it a git worktree of its own, for work in parallel.")
        ] = False,
        budget_usd: Annotated[
            float | None, Field(description="The most that it may cost, in US dollars.", gt=0)
        ] = None,
        wait_s: Wait = WAIT_S,
        key: Key = None,
    ) -> AgentNews:
        """Start another agent on a task. It runs on by itself: use follow for news, send for more work, close at the end."""
        caller = CALL.get()
        about = await self._backend(backend)
        parent = await self._parent(caller)
        depth = self._bounds.depth_below(parent.labels if parent else {})
        directory = self._bounds.directory(cwd if parent is None else cwd or parent.cwd)
        key = key or caller.key
        names = (caller.client, caller.parent or "", directory, key or new_key())
        session_id = str(uuid.uuid5(_IDS, "\0".join(names)))
        options: dict[str, Any] = {
            "session_id": session_id, "model": model, "title": title,
            "worktree": {"within": self._bounds.root} if worktree else None,
            "permission_mode": self._bounds.permission_mode(about.name),
            "mode": "live" if about.capabilities.get("live") else None,
        }  # fmt: skip
        labels = {CLIENT_LABEL: caller.client[:256], DEPTH_LABEL: str(depth)}
        async with self._opening:
            known = await self._known(session_id)
            if known is None:
                self._bounds.check_room(
                    len([row for row in await self.client.sessions() if CLIENT_LABEL in row.labels])
                )
                budget = self._bounds.budget(budget_usd, left_of(parent.budget) if parent else None)
                options["budget"] = None if budget is None else {"usd": budget}
                labels |= {} if budget is None else {OWN_BUDGET_LABEL: repr(budget)}
                labels |= {} if parent is None else {PARENT_LABEL: parent.session_id}
                delegates = depth < self._bounds.depth and bool(about.capabilities.get("tools"))
                open_ = self._delegate if delegates else self.client.open
                await open_(about.name, directory, labels=labels, **options)
            if parent is not None:
                await self._take_from(parent)
        await self._own(session_id)  # a directory on the way may have become a link meanwhile
        session = self.client.attach(session_id)
        return await self._prompt(session, prompt, wait_s, "start")

    async def send(
        self,
        session: Session,
        prompt: Annotated[str, Field(description="What to do next.", min_length=1)],
        wait_s: Wait = WAIT_S,
        key: Key = None,
    ) -> AgentNews:
        """Send more work to an agent that was started by start. While it is busy, the work waits for its turn."""
        await self._own(session)
        return await self._prompt(self.client.attach(session), prompt, wait_s, key or CALL.get().key or new_key())

    async def follow(
        self,
        session: Session,
        after_seq: Annotated[int, Field(description="after_seq of the last answer; 0 for all.", ge=0)] = 0,
        wait_s: Wait = WAIT_S,
    ) -> AgentNews:
        """Return what an agent has done since after_seq. Waits for the end of its turn, for an approval, or wait_s."""
        await self.readable(session)
        return await self._news(self.client.attach(session), NewsFold(after_seq), wait_s)

    async def interrupt(self, session: Session) -> ToolDone:
        """Stop what an agent does now. Its session stays, and send goes on with it."""
        await self._own(session)
        ended = await self.client.attach(session).interrupt()
        return ToolDone(session=session, done=f"turn {ended.turn_id} is {ended.outcome}")

    async def sessions(
        self,
        label: Annotated[str | None, Field(description="Only sessions with this label: NAME, or NAME=VALUE.")] = None,
    ) -> list[AgentRow]:
        """List the open sessions of this machine, newest first: those of agents, and those of people, to read."""
        name, equals, value = (label or "").partition("=")
        rows = [
            row for row in await self.client.sessions()
            if self._may_read(row) and (not name or (row.labels.get(name) == value if equals else name in row.labels))
        ]  # fmt: skip
        return [_row(row) for row in rows[:MAX_ROWS]]

    async def approvals(self) -> list[WaitingCall]:
        """List the tool calls of agents that wait for a decision."""
        mine = {row.session_id for row in await self.client.sessions() if self._is_own(row)}
        return [asked_of(item) for item in await self.client.open_approvals() if item.session_id in mine][:MAX_ROWS]

    async def answer(
        self,
        session: Session,
        approval_id: Annotated[str, Field(description="As approvals or follow gave it.")],
        decision: Literal["allow", "deny"],
        message: Annotated[str | None, Field(description="Of a deny: what the agent reads.")] = None,
        answers: Annotated[dict[str, str] | None, Field(description="Of questions: the answer by question.")] = None,
    ) -> ToolDone:
        """Allow or deny a tool call of an agent, or answer its questions."""
        await self._own(session)
        for approval in await self.client.attach(session).open_approvals():
            if approval.approval_id == approval_id:
                changed = {**approval.input, "answers": answers} if answers else None
                await self.client.settle(approval, Answer(decision, message=message, updated_input=changed))
                return ToolDone(session=session, done=f"{decision}: {approval.tool_name}")
        raise UsageError(
            f"there is no open approval {approval_id[:64]!r} in this session",
            kind="approval_not_found",
            hint="it may be answered already: call follow",
        )

    async def close(self, session: Session) -> ToolDone:
        """End an agent's session. What runs in it is stopped; its record stays."""
        await self._own(session)
        await self.client.attach(session).close()
        return ToolDone(session=session, done="closed")

    # -- sessions and their bounds

    async def _backend(self, name: str) -> BackendInfo:
        found = {about.name: about for about in await self.client.backends()}
        if name not in found:
            raise WorldError(
                f"there is no backend {name[:64]!r}", kind="backend_not_found", hint=f"there is: {', '.join(found)}"
            )
        return found[name]

    async def _parent(self, caller: ToolCaller) -> SessionDetail | None:
        return None if caller.parent is None else await self.client.attach(caller.parent).info()

    async def _known(self, session_id: str) -> SessionDetail | None:
        try:
            return await self.client.attach(session_id).info()
        except ClisupError as error:
            if error.kind != "session_not_found":
                raise
        return None

    def _is_own(self, row: SessionSummary) -> bool:
        """Tell whether the caller may drive a session: agents have started it, and it is below the root."""
        parent = CALL.get().parent
        own = CLIENT_LABEL in row.labels and (parent is None or row.labels.get(PARENT_LABEL) == parent)
        return own and self._bounds.holds(row.cwd)

    def _may_read(self, row: SessionSummary) -> bool:
        """Tell whether the caller may read a session: an agent reads only those that it has started."""
        return self._is_own(row) if CALL.get().parent else self._bounds.holds(row.cwd)

    async def readable(self, session_id: str) -> SessionDetail:
        info = await self.client.attach(session_id).info()
        if not self._may_read(info):
            raise UsageError(
                f"session {session_id} is outside of {self._bounds.root}, or of another agent",
                kind="permission_denied",
                hint="call sessions for those that can be read",
            )
        return info

    async def _own(self, session_id: str) -> None:
        """Raise `UsageError(permission_denied)` for a session that no agent has started, or another one has."""
        if not self._is_own(await self.readable(session_id)):
            raise UsageError(
                f"session {session_id} belongs to a person, or to another agent: it can only be read",
                kind="permission_denied",
                hint="call start for an agent of your own",
            )

    async def _take_from(self, parent: SessionDetail) -> None:
        """Take the budgets of all its agents from the budget of a session.

        The sum is made anew each time, so that a call that comes again after a kill takes nothing twice.
        """
        own = parent.labels.get(OWN_BUDGET_LABEL)
        if own is None:
            return
        labels = {PARENT_LABEL: parent.session_id}
        rows = [*await self.client.sessions(labels=labels), *await self.client.sessions(labels=labels, state="closed")]
        given = sum(float(row.labels.get(OWN_BUDGET_LABEL, "0")) for row in rows)
        limits = {**((parent.budget or {}).get("limit") or {}), "usd": max(0.0001, float(own) - given)}
        await self.client.attach(parent.session_id).set_budget(**limits)

    # -- news

    async def _prompt(self, session: AsyncSession, prompt: str, wait_s: float, key: str) -> AgentNews:
        accepted = await session.prompt(prompt, wait=False, key=key)
        return await self._news(session, NewsFold(accepted.seq - 1, accepted.turn_id), wait_s)

    async def _news(self, session: AsyncSession, fold: NewsFold, wait_s: float) -> AgentNews:
        info = await session.info()
        upto = info.next_seq - 1
        busy = _busy(info) or fold.turn_id is not None
        if busy or fold.after_seq < upto:
            with trio.move_on_after(wait_within(wait_s)) as waiting:
                async with open_plain_nursery() as nursery:
                    lines = ["begins"]
                    nursery.start_soon(_report, lines, waiting.deadline, wait_within(wait_s))
                    await self._read(session, fold, lines, None if busy else upto)
        asked = [] if fold.ended else await session.open_approvals()
        info = info if fold.ended else await session.info()
        state = news_of(info.state, waits=bool(asked), busy=_busy(info))
        return fold.news(session.id, state, approvals=[asked_of(item) for item in asked])

    async def _read(self, session: AsyncSession, fold: NewsFold, lines: list[str], upto: int | None) -> None:
        """Read events until the turn ends, an approval is open, or the seq `upto` is there."""
        events = session.turn_events(fold.after_seq, deltas=False)
        try:
            async for envelope in events:
                fold.take(envelope)
                lines[0] = fold.progress(envelope) or lines[0]
                if fold.ended or (upto is not None and envelope.seq >= upto):
                    return
                if isinstance(envelope.event, ApprovalRequested):
                    asked = await session.open_approvals()
                    if any(item.approval_id == envelope.event.approval_id for item in asked):
                        return
        except ClisupError as error:
            if error.kind not in ("session_closed", "session_not_found"):
                raise
        finally:
            events.close()


async def _report(lines: list[str], deadline: float, wait_s: float) -> None:
    """Report progress at once when the line changes, and every `TICK_S`."""
    caller, told, told_at = CALL.get(), "", 0.0
    if caller.report is None:
        return
    while True:
        now = trio.current_time()
        if lines[0] != told or now - told_at >= TICK_S:
            told, told_at = lines[0], now
            await caller.report(max(0.0, wait_s - (deadline - now)), wait_s, told)
        await trio.sleep(0.25)


def _busy(info: SessionSummary) -> bool:
    return info.turn_id is not None or bool(info.queue)


def _row(row: SessionSummary) -> AgentRow:
    return AgentRow(
        session=row.session_id, title=row.title, backend=row.backend, state=row.state, phase=row.phase, cwd=row.cwd,
        approvals=row.approvals, turns=row.turns, cost_usd=row.cost_usd, labels=row.labels, yours=CLIENT_LABEL in row.labels,
    )  # fmt: skip
