"""One session at one editor: its events become updates, and its approvals become dialogs. The first answer of any client wins."""

from __future__ import annotations

from typing import Any, Literal

import trio

from clisup.client.aio import AsyncClient
from clisup.client.answers import Answer, settled
from clisup.client.events import (
    ApprovalRequested,
    ApprovalResolved,
    Envelope,
    Notice,
    PromptAccepted,
    TurnCompleted,
    TurnStarted,
)
from clisup.client.raw import JsonObject
from clisup.client.reconnect import may_come_back
from clisup.doors.acp.calls import surely
from clisup.doors.acp.connection import EditorConnection, EditorRefused
from clisup.doors.acp.history import replay, replay_settings, with_payload
from clisup.doors.acp.questions import (
    EditorDialog,
    answer_of_choices,
    answer_of_form,
    answer_of_permission,
    dialog_of,
    goes_on,
)
from clisup.doors.acp.settings import SessionBackend, config_options, modes
from clisup.doors.acp.turns import EditorTurn
from clisup.doors.acp.updates import UpdateMaker, call_id, chunk, tool_call
from clisup.doors.log import DoorLog
from clisup.errors import ClisupError

__all__ = ["EditorSession"]

USAGE_S = 10.0
"""Seconds for the CLI to count its context after a turn."""

MAX_ASKED = 3
"""Times that an editor is asked for an answer that the daemon refuses, such as a form with a missing field."""

AGAIN_S = 1.0
"""Pause between attempts to follow a session whose daemon stays away."""


class EditorSession:
    """Session that an editor has opened. `run` runs its tasks until `leave`."""

    def __init__(
        self,
        client: AsyncClient,
        editor: EditorConnection,
        log: DoorLog,
        session_id: str,
        cwd: str,
        backend: SessionBackend,
        *,
        shows_forms: bool,
    ) -> None:
        self._client, self._editor, self._log = client, editor, log
        self.session = client.attach(session_id)
        self.id, self.cwd, self.backend = session_id, cwd, backend
        self.models: tuple[str, ...] = ()
        self.turns: list[EditorTurn] = []
        """Prompts of this editor without an answer, in the order in which they came."""
        self._keys: set[str | None] = set()
        self.maker = UpdateMaker(cwd, self._keys)
        self._shows_forms = shows_forms
        self._nursery: trio.Nursery
        self._dialogs: dict[str, trio.CancelScope] = {}
        self._title: str | None = None
        self.announced = False
        self._lost: ClisupError | None = None  # why the session is not followed any longer
        self._reporting = trio.Lock()

    # -- opening and leaving

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run the tasks of the session until `leave`."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def begin(self, after: int, *, show: Literal["all", "later"], idle: bool, first: int, upto: int) -> None:
        """Read what is stored up to the seq `upto`. Show all of it, or what comes after the seq `after` (`later`)."""
        if show == "later" and idle and after >= upto:
            await replay_settings(self._client, self.session, self.maker, upto)
            return

        async def send(envelope: Envelope, updates: list[JsonObject]) -> None:
            if show == "all" or envelope.seq > after:
                await self._show(envelope, updates)

        await replay(self._client, self.session, self.maker, upto, send, first=first, forks=show == "all")

    def follow(self, upto: int) -> None:
        """Show the events after the seq `upto` from now on, and ask about the open approvals."""
        for approval in self.maker.open_approvals.values():
            self._open_dialog(approval)
        self._nursery.start_soon(self._follow, upto)

    def leave(self) -> None:
        """Stop following. Turns go on, and open approvals stay open for others."""
        self._nursery.cancel_scope.cancel()
        for turn in self.turns:
            turn.leave()

    def state(self) -> JsonObject:
        """Return modes and configuration options, for the answers to `session/new` and `session/load`."""
        mode = modes(self.backend, self.maker.mode)
        return {**({"modes": mode} if mode else {}), "configOptions": self.options()}

    def options(self) -> list[JsonObject]:
        """Return the configuration options."""
        return config_options(self.backend, self.maker.mode, self.maker.model, self.models)

    # -- prompts

    def expect(self, key: str) -> EditorTurn:
        """Return the place of a prompt with this key, behind those before it. Raises why the session is not followed."""
        if self._lost is not None:
            raise self._lost
        turn = EditorTurn(key, self.turns[-1] if self.turns else None)
        self.turns.append(turn)
        self._keys.add(key)
        return turn

    def forget(self, turn: EditorTurn) -> None:
        """Drop a prompt that was answered."""
        turn.sent()
        self.turns.remove(turn)
        self._keys.discard(turn.key)

    async def look_for_end(self, turn: EditorTurn, seq: int) -> None:
        """Find the end of a turn that was accepted before, by the seq of its acceptance: it may be over."""
        async for envelope in self.session.history(seq, types=["turn_completed"]):
            if isinstance(envelope.event, TurnCompleted):
                turn.ended(envelope.turn_id, envelope.event)

    async def interrupt(self, turn_id: str | None) -> None:
        """Interrupt a turn, or the one that runs, also across a restart. A turn that is over is no error."""
        try:
            await surely(self._client, "session/interrupt", session_id=self.id, turn_id=turn_id)
        except ClisupError as error:
            self._log.write(f"session {self.id}: nothing was interrupted ({error.kind})")

    async def say(self, text: str) -> None:
        """Send words of the door itself as words of the agent."""
        await self.update(chunk("agent_message_chunk", {"type": "text", "text": text}))

    async def think(self, text: str) -> None:
        """Send words of the door itself as a thought."""
        await self.update(chunk("agent_thought_chunk", {"type": "text", "text": text}))

    # -- events

    async def _follow(self, after: int) -> None:
        while True:
            try:
                async for envelope in self.session.turn_events(after):
                    await self._take(await with_payload(self._client, envelope))
                    after = envelope.seq
                return
            except ClisupError as error:
                self._log.write(f"session {self.id} is not followed: {error.kind}")
                for turn in self.turns:
                    turn.fail(error)
                if not may_come_back(error):
                    self._lost = error
                    return
            await trio.sleep(AGAIN_S)

    async def _take(self, envelope: Envelope) -> None:
        before = self.maker.mode, self.maker.model
        await self._show(envelope, self.maker.take(envelope))
        if (self.maker.mode, self.maker.model) != before:
            await self.update({"sessionUpdate": "config_option_update", "configOptions": self.options()})
        match envelope.event:
            case ApprovalRequested() as approval:
                self._open_dialog(approval)
            case ApprovalResolved(approval_id=id_) if id_ in self._dialogs:
                self._dialogs.pop(id_).cancel()
            case PromptAccepted(key=key):
                for turn in self.turns:
                    turn.accepted(key, envelope.turn_id)
            case TurnCompleted() as end:
                for turn in self.turns:
                    turn.ended(envelope.turn_id, end)
                self._nursery.start_soon(self._report, True)
            case TurnStarted() | Notice(code="title_set"):
                self._nursery.start_soon(self._report, False)

    async def _show(self, envelope: Envelope, updates: list[JsonObject]) -> None:
        """Send updates. The last one has the event's seq, after which `session/resume` can go on."""
        for place, update in enumerate(updates, 1):
            await self.update(update, seq=envelope.seq if place == len(updates) else None)

    async def update(self, update: JsonObject, *, seq: int | None = None) -> None:
        """Send one update."""
        meta = {} if seq is None else {"_meta": {"clisup": {"seq": seq}}}
        await self._editor.notify("session/update", {"sessionId": self.id, "update": update, **meta})

    async def announce(self) -> None:
        """Send the commands, and the title if there is one."""
        commands = {"sessionUpdate": "available_commands_update", "availableCommands": self.backend.commands}
        await self.update(commands)
        await self._report(False)

    async def _report(self, with_usage: bool) -> None:
        """Send the title if it is new. `with_usage` also sends cost and context, where the live CLI counts its context."""
        async with self._reporting:
            try:
                with trio.move_on_after(USAGE_S):
                    await self._report_now(with_usage)
            except ClisupError as error:
                self._log.write(f"session {self.id}: no usage ({error.kind})")

    async def _report_now(self, with_usage: bool) -> None:
        info = await self.session.info()
        if info.title != self._title:
            self._title = info.title
            at = (info.last_event or {}).get("ts") or info.created_at
            await self.update({"sessionUpdate": "session_info_update", "title": info.title, "updatedAt": at})
        if with_usage and info.live and "context_usage" in (self.backend.capabilities.get("controls") or ()):
            context = await self.session.context_usage()
            used, size = context.get("total_tokens"), context.get("max_tokens")
            if used is not None and size is not None:
                cost = {} if info.cost_usd is None else {"cost": {"amount": info.cost_usd, "currency": "USD"}}
                await self.update({"sessionUpdate": "usage_update", "used": used, "size": size, **cost})

    # -- approvals

    def _open_dialog(self, approval: ApprovalRequested) -> None:
        if approval.approval_id not in self._dialogs:
            scope = self._dialogs[approval.approval_id] = trio.CancelScope()
            self._nursery.start_soon(self._settle, approval, scope)

    async def _settle(self, approval: ApprovalRequested, scope: trio.CancelScope) -> None:
        """Ask the editor, and answer the approval. Another client's answer cancels `scope`, which withdraws the dialog."""
        turn_id = self.maker.approval_turns.get(approval.approval_id)
        id_ = call_id(turn_id, approval.tool_use_id or approval.approval_id)
        dialog = dialog_of(approval, tool_call(id_, approval.tool_name, approval.input, self.cwd))
        answer, first = None, None
        with scope:
            for _ in range(MAX_ASKED):
                try:
                    self._dialogs[approval.approval_id] = scope
                    if (answer := await self._ask(approval, dialog)) is not None:
                        # From here on another client's answer withdraws no dialog: the daemon says who was first.
                        self._dialogs[approval.approval_id] = trio.CancelScope()
                        await self._respond(approval, answer)
                    return
                except EditorRefused as error:
                    self._log.write(f"approval {approval.approval_id} stays open: the editor answered error {error}")
                    return
                except ClisupError as error:
                    if settled(error):
                        first = error.data.get("decision")
                        break
                    self._log.write(f"approval {approval.approval_id} stays open: {error.kind}")
                    await self.say(f"[The answer was not taken: {error}]\n\n")
                    if error.kind != "invalid_params":
                        return
        if answer is not None and first not in (None, answer.decision):
            await self.say(f"[The answer was not taken: another client was first: {first}]\n\n")

    async def _respond(self, approval: ApprovalRequested, answer: Answer) -> None:
        """Answer an approval, also across a restart."""
        given = answer.params()
        await surely(self._client, "approval/respond", approval_id=approval.approval_id, session_id=self.id, **given)

    async def _ask(self, approval: ApprovalRequested, dialog: EditorDialog) -> Answer | None:
        if dialog.form is not None and self._shows_forms:
            result = await self._editor.ask("elicitation/create", {"sessionId": self.id, **dialog.form})
            return answer_of_form(dialog, approval, result)
        if not dialog.permissions:
            words = "[The CLI asks a question that this editor cannot answer. Answer it: clisup approvals answer]"
            await self.say(words)
            return None
        results: list[Any] = []
        for params in dialog.permissions:
            results.append(await self._editor.ask("session/request_permission", {"sessionId": self.id, **params}))
            if not goes_on(results[-1]):
                break
        if dialog.kind == "questions":
            return answer_of_choices(approval, results)
        return answer_of_permission(dialog, results[0])
