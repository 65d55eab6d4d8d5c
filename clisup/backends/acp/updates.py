"""Decoder of `session/update` of the Agent Client Protocol (version 1): messages from chunks, tool calls from their updates.

Names and fields are those of the protocol's schema (`@agentclientprotocol/sdk` 2.4.0, `schema/v1`). An agent sends a message in
chunks only, without a sign of its end. The whole message and its end are therefore made here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Struct, field

from clisup.backends.acp.dialect import AcpDialect, Habits
from clisup.backends.frames import (
    Count,
    Frame,
    Half,
    MalformedError,
    first_str,
    get_cost,
    get_dict,
    get_dicts,
    get_int,
    get_str,
    join_halves,
    status,
)
from clisup.model.events import (
    AssistantMessage,
    Block,
    ContentDelta,
    EventBase,
    MessageStart,
    MessageStop,
    ToolProgress,
    ToolResult,
    ToolUse,
    UsageReport,
)
from clisup.model.usage import Usage

__all__ = ["CHUNKS", "SAID", "SILENT", "TERMINAL_CHARS", "Updates", "UpdatesState", "late_words"]

_ENDED = ("completed", "failed")
CHUNKS: dict[str, Literal["text", "thinking"]] = {"agent_message_chunk": "text", "agent_thought_chunk": "thinking"}
_ANSWERS = frozenset({"agent_message_chunk", "tool_call", "tool_call_update", "plan", "compaction_update"})
SAID = frozenset({*CHUNKS, "user_message_chunk", "tool_call", "tool_call_update", "plan"})
"""Updates of a conversation. Before the prompt they are a replay of an older conversation."""
SILENT = frozenset(
    {
        "user_message_chunk",  # an echo of the prompt
        "available_commands_update",  # for menus
        "config_option_update",  # settings for a display; the decoder asks for the model before the prompt
        "compaction_summary_chunk",  # a piece of the later compaction_update
    }
)


class _Chunks(Struct):
    """Message that is being streamed. Its texts stay in pieces until its end."""

    id: str
    native_id: str | None
    blocks: list[Block | tuple[Literal["text", "thinking"], list[str]]] = field(default_factory=list)
    held: Half = 0
    """First half of a surrogate pair; the next chunk has the other half."""

    def add(self, kind: Literal["text", "thinking"], text: str) -> list[EventBase]:
        whole, self.held = join_halves(text, self.held)
        if not whole:
            return []
        last = self.blocks[-1] if self.blocks else None
        if not isinstance(last, tuple) or last[0] != kind:
            last = (kind, [])
            self.blocks.append(last)
        last[1].append(whole)
        return [ContentDelta(kind=kind, text=whole, index=len(self.blocks) - 1, message_id=self.id)]

    def whole(self) -> tuple[Block, ...]:
        return tuple(
            Block(kind=block[0], text="".join(block[1])) if isinstance(block, tuple) else block for block in self.blocks
        )


class UpdatesState(Struct):
    """State of `Updates`. `growing` is the id of the call whose input grows.

    `text` is the turn's final text, `usage` the sum of the usage in single chunks.
    """

    message: _Chunks | None = None
    count: Count = 0
    tools: dict[str, AcpTool] = field(default_factory=dict)
    growing: str | None = None
    last_chunk: str = ""
    system_error: bool = False
    mentioned: dict[str, None] = field(default_factory=dict)
    """Ids of the calls without an event yet. Each line asks for them, and a turn may have thousands of other calls."""
    answers: bool = False
    """The agent has reported more than thoughts: words, a call, a plan or a compaction."""
    title: str | None = None
    text: str = ""
    usage: Usage | None = None
    cost_usd: float | None = None


class Updates:
    """Conversation of one turn, in the dialect of one agent. `habits` are known from `initialize` on."""

    def __init__(self, dialect: AcpDialect) -> None:
        self._dialect = dialect
        self.habits = Habits()
        self.state = UpdatesState()

    def take(self, update: Frame) -> list[EventBase]:
        """Return the events of one update. Raises LookupError for an unknown kind, MalformedError for a wrong shape."""
        name = get_str(update, "sessionUpdate") or ""
        if name in SILENT:
            return []
        self.state.answers = self.state.answers or name in _ANSWERS
        handler = None if name in CHUNKS else _HANDLERS[name]
        events = self._grown(update)
        return [*events, *(handler(self, update) if handler else self._chunk(CHUNKS[name], update))]

    def asked(self, call: Frame) -> tuple[list[EventBase], ToolUse, str | None]:
        """Return the event of a call that needs a permission if it is new (gemini reports the call only here), the call and its title."""
        tool = self._known(call)
        events = [] if tool.announced else self._announce(tool)
        use = ToolUse(tool_use_id=tool.id, name=self._dialect.tool_name(tool.fields), input=tool.input)
        return events, use, get_str(tool.fields, "title")

    @property
    def unannounced(self) -> dict[str, str]:
        """Names of the open calls whose event waits for the rest of their input."""
        tools = self.state.tools
        return {name: self._dialect.tool_name(tools[name].fields) for name in self.state.mentioned if name in tools}

    def announce(self, tool_id: str) -> list[EventBase]:
        """Return the event of a call that the agent has reported and that still waits for the rest of its input."""
        tool = self.state.tools.get(tool_id)
        return [] if tool is None or tool.announced else self._announce(tool)

    @property
    def failure(self) -> str | None:
        """Agent's words for the failed request that ended its turn, for an agent that answers a failure with `end_turn`."""
        if self.state.system_error:
            return self.state.text.strip() or "the agent ended in a system error"
        prefix = self.habits.error_prefix
        return self.state.last_chunk if prefix and self.state.last_chunk.startswith(prefix) else None

    @property
    def ran_tools(self) -> bool:
        """Tell whether a tool ended, so that the agent asked the model again."""
        return any(tool.ended for tool in self.state.tools.values())

    def finish(self) -> list[EventBase]:
        """End the turn: complete the last message, and report calls whose input never became complete."""
        events = self._end_message()
        for tool in self.state.tools.values():
            if not tool.announced:
                events += self._announce(tool)
        return events

    # Messages

    def _chunk(self, kind: Literal["text", "thinking"], update: Frame) -> list[EventBase]:
        content, meta = get_dict(update, "content"), get_dict(update, "_meta")
        block = None if content.get("type") == "text" else block_of(content)
        text = get_str(content, "text") if block is None else None
        if (block is None and text is None) or not get_str(content, "type"):
            raise MalformedError("a chunk without content")
        if text and self._dialect.is_note(meta):
            return self._note(text)
        usage = self._dialect.chunk_usage(meta)
        events: list[EventBase] = []
        if text != "":  # an empty chunk only carries other fields
            self.state.last_chunk = text or "" if kind == "text" else ""
            message = self._begin(get_str(update, "messageId"), events)
            if block is None:
                events += message.add(kind, text or "")
            else:
                message.blocks.append(block)
        if usage is None:
            return events
        self.state.usage = usage if self.state.usage is None else self.state.usage + usage
        return events + self._end_message(usage)  # the tokens of a request come after its answer

    def _note(self, text: str) -> list[EventBase]:
        """Report the agent's own words, which the agent sends as words of the model."""
        events = self._end_message()
        self.state.count += 1
        name = f"message-{self.state.count}"
        note = AssistantMessage(message_id=name, blocks=(Block(kind="text", text=text),), synthetic=True)
        return [*events, MessageStart(message_id=name), note, MessageStop(message_id=name)]

    def _begin(self, native: str | None, events: list[EventBase]) -> _Chunks:
        """Return the message of a chunk, and append the events of its beginning to `events`."""
        message = self.state.message
        if message is not None and (native is None or native == message.native_id):
            return message
        events += self._end_message()
        self.state.count += 1
        # Unique within the turn. An agent's own id may come again after a tool call.
        message_id = f"message-{self.state.count}" if native is None else f"{native}#{self.state.count}"
        self.state.message = _Chunks(message_id, native)
        events.append(MessageStart(message_id=message_id))
        return self.state.message

    def _end_message(self, usage: Usage | None = None) -> list[EventBase]:
        message = self.state.message
        if message is None:
            return []
        self.state.message = None
        events: list[EventBase] = []
        if message.held:  # without its other half: one unknown character
            last = message.blocks[-1] if message.blocks else None
            kind = last[0] if isinstance(last, tuple) else "text"
            message.held = 0
            events += message.add(kind, "\ufffd")
        blocks = message.whole()
        self.state.text = "".join(block.text or "" for block in blocks if block.kind == "text")
        if blocks:
            events.append(AssistantMessage(message_id=message.id, blocks=blocks))
        return [*events, MessageStop(message_id=message.id, usage=usage)]

    # Tools

    def _known(self, update: Frame) -> AcpTool:
        tool_id = get_str(update, "toolCallId")
        if not tool_id:
            raise MalformedError("a tool call without toolCallId")
        tool = self.state.tools.get(tool_id)
        if tool is None:
            tool = self.state.tools[tool_id] = AcpTool(tool_id)
            self.state.mentioned[tool_id] = None
        tool.learn(self._dialect.call(update))
        if self.habits.pending_input == "later" and update.get("sessionUpdate") == "tool_call":
            tool.fields.setdefault("name", tool.fields.get("title"))
        return tool

    def _tool(self, update: Frame) -> list[EventBase]:
        """Report a call once its input is complete: with the input, or when the tool runs.

        A pending call does not wait in general: Copilot CLI 1.0.102 never reports that a tool runs.
        """
        tool = self._known(update)
        state = get_str(update, "status") or "pending"
        if tool.ended:
            return []
        was_announced = tool.announced
        events: list[EventBase] = []
        has_input = bool(tool.fields.get("rawInput"))
        if not tool.announced and (state != "pending" or (has_input and self.habits.pending_input == "whole")):
            events += self._announce(tool)
        elif has_input and self.habits.pending_input == "grows":
            self.state.growing = tool.id
        if state in _ENDED:
            tool.ended = True
            self.state.text = self.state.last_chunk = ""  # a text before a tool's end is not the final text
            return [*events, result_of(tool, is_error=state == "failed")]
        if was_announced:
            events.append(ToolProgress(tool_use_id=tool.id, name=self._dialect.tool_name(tool.fields)))
        return events

    def _grown(self, update: Frame) -> list[EventBase]:
        """Return the call whose input is complete, because `update` does not add to it."""
        tool = self.state.tools.get(self.state.growing or "")
        if tool is None or ("rawInput" in update and update.get("toolCallId") == tool.id):
            return []
        self.state.growing = None
        return [] if tool.announced else self._announce(tool)

    def _announce(self, tool: AcpTool) -> list[EventBase]:
        tool.announced = True
        self.state.mentioned.pop(tool.id, None)
        use = ToolUse(tool_use_id=tool.id, name=self._dialect.tool_name(tool.fields), input=tool.input)
        return [*self._end_message(), use]

    def _session_info(self, update: Frame) -> list[EventBase]:
        """Read the session's title. codex-acp 2.6.0 adds the thread's state; a final text explains its `systemError`."""
        title = get_str(update, "title")
        events: list[EventBase] = [status("title", title)] if title and title != self.state.title else []
        self.state.title = title or self.state.title
        state = get_str(get_dict(get_dict(get_dict(update, "_meta"), "codex"), "threadStatus"), "type")
        if state is None:
            return events
        self.state.system_error = state == "systemError"
        if self.state.system_error:
            events += self._end_message()
            self.state.text = ""
        return events

    def _usage_update(self, update: Frame) -> list[EventBase]:
        cost = get_dict(update, "cost")
        if cost.get("currency") == "USD":
            self.state.cost_usd = (
                get_cost(cost, "amount") or None
            )  # opencode 1.18.34 reports 0 for a model without a price
        used = get_int(update, "used")
        return [UsageReport(usage=Usage(), context_tokens=used)] if used else []  # 0: nothing was measured


def _plan(update: Frame) -> list[EventBase]:
    entries = update.get("entries")
    if not isinstance(entries, list):
        raise MalformedError("a plan without entries")
    lines = [f"[{get_str(e, 'status') or '?'}] {get_str(e, 'content') or ''}" for e in entries if isinstance(e, dict)]
    return [status("plan", "\n".join(lines))]


_HANDLERS: dict[str, Callable[[Updates, Frame], list[EventBase]]] = {
    "tool_call": Updates._tool,
    "tool_call_update": Updates._tool,
    "plan": lambda _, update: _plan(update),
    "current_mode_update": lambda _, update: [status("permission_mode", get_str(update, "currentModeId"))],
    "usage_update": Updates._usage_update,
    "session_info_update": Updates._session_info,
    "notice": lambda _, update: [status("notice", first_str(update, "description", "title"))],
    "compaction_update": lambda _, update: [status("compaction", get_str(update, "status"))],
}


def late_words(update: Frame) -> EventBase:
    """Return the words of an update behind the end of its turn."""
    words = get_str(get_dict(update, "content"), "text") or get_str(update, "title") or ""
    name = get_str(update, "sessionUpdate") or ""
    return status("late_update", f"{name}: {words}" if words else name)


# Tool calls and content blocks

_TERMINAL_OUTPUT = ("terminal_output_delta", "terminal_output")
TERMINAL_CHARS = 1_048_576  # limit of a command's output in pieces; the spool has all of it


class AcpTool(Struct):
    """State of one tool call. Each update replaces the fields that it has.

    A command's output may stand outside `content`, beside a block of the type `terminal`: the output in pieces in
    `_meta.terminal_output_delta` or `_meta.terminal_output`, the exit code in `_meta.terminal_exit`. codex-acp 2.6.0 sends
    the first to every client, codex-acp and claude-agent-acp 0.101.0 the second to a client that shows terminals.
    """

    id: str
    fields: Frame = field(default_factory=dict)
    announced: bool = False
    ended: bool = False
    output: list[str] = field(default_factory=list)
    room: Count = TERMINAL_CHARS
    exit_code: int | None = None
    tells_terminal: bool = False

    def learn(self, update: Frame) -> None:
        self.fields.update({name: value for name, value in update.items() if value is not None})
        meta = get_dict(update, "_meta")
        for name in _TERMINAL_OUTPUT:
            piece = get_str(get_dict(meta, name), "data") or ""
            if piece and self.room > 0:
                self.output.append(piece[: self.room])
            self.room -= len(piece)
        self.tells_terminal |= not meta.keys().isdisjoint((*_TERMINAL_OUTPUT, "terminal_exit"))
        code = get_int(get_dict(meta, "terminal_exit"), "exit_code")
        self.exit_code = self.exit_code if code is None else code

    @property
    def input(self) -> Frame:
        """Arguments of the call. `rawInput` is optional; without it, the input is the agent's description for people."""
        raw = self.fields.get("rawInput")
        if isinstance(raw, dict):
            return raw
        told = {"rawInput": raw} if raw else {}
        return told | {name: self.fields[name] for name in ("title", "locations") if self.fields.get(name)}


def result_of(tool: AcpTool, *, is_error: bool) -> ToolResult:
    """Return the result of a call: `content` and the terminal's output, or `rawOutput` if there is nothing else.

    A failed command's output begins with its exit code, as codex's does.
    """
    items = get_dicts(tool.fields, "content")
    output = "".join(tool.output)
    if tool.exit_code:
        output = f"exit code {tool.exit_code}\n{output}"
    if tool.tells_terminal:
        items = [item for item in items if get_str(item, "type") != "terminal"]
    if output:
        items.append({"type": "content", "content": {"type": "text", "text": output}})
    blocks = [_item(item) for item in items]
    text = "\n".join(block.text or "" for block in blocks if block.kind == "text")
    raw = tool.fields.get("rawOutput")
    if not blocks and raw is not None:
        text = raw if isinstance(raw, str) else msgspec.json.encode(raw).decode()
    only_text = all(block.kind == "text" for block in blocks)
    return ToolResult(
        tool_use_id=tool.id,
        content=text,
        blocks=None if only_text else tuple(blocks),
        is_error=is_error,
        truncated=tool.room < 0,
    )


def _item(item: Frame) -> Block:
    """Return an item of a tool's content: a block, a change to a file, or a terminal (which we never offer)."""
    kind = get_str(item, "type")
    if kind == "content":
        return block_of(get_dict(item, "content"))
    if kind == "diff":
        change = {name: item[name] for name in ("path", "oldText", "newText") if isinstance(item.get(name), str)}
        return Block(kind="other", native_kind="diff", name=get_str(item, "path"), input=change)
    return Block(kind="other", native_kind=kind, name=get_str(item, "terminalId"))


def block_of(content: Frame) -> Block:
    """Return a content block. A block of an unknown type becomes `other` with its own name."""
    kind = get_str(content, "type")
    if kind == "text":
        return Block(kind="text", text=get_str(content, "text") or "")
    if kind == "image":
        return Block(kind="image", media_type=get_str(content, "mimeType"), data=get_str(content, "data"))
    resource = get_dict(content, "resource") or content
    return Block(
        kind="other",
        native_kind=kind,
        name=get_str(resource, "uri"),
        text=get_str(resource, "text"),
        media_type=get_str(resource, "mimeType"),
    )
