"""Backend `codex-exec`: `codex exec --json`, the prompt on stdin, one process for each turn (codex-cli 0.169.0).

exec gives less than app-server: whole items without deltas, no rate limits, no refused calls, and usage as the thread's running
total. Item ids begin again with each process.
"""

from __future__ import annotations

from msgspec.structs import replace

from clisup.backends.base import TOKENS, Capabilities, Carried, Decoded, LaunchRequest, LaunchSpec, OpenWork
from clisup.backends.codex.adapter import OWN_ENVIRONMENT, PERMISSION_MODES, QUIET, CodexBase, check
from clisup.backends.codex.decoder import CodexTurn, CodexTurnState
from clisup.backends.codex.errors import CodexFailure, explain_report, retry_of
from clisup.backends.codex.notices import usage_of
from clisup.backends.codex.protocol import (
    Said,
    bridge_launcher,
    bridge_words,
    hidden,
    sandbox_of,
    strict_schema,
    toml_value,
    trust_of,
)
from clisup.backends.frames import Frame, MalformedError, get_dict, get_str, status
from clisup.backends.lines import NOTHING
from clisup.backends.long_texts import exec_passes_on
from clisup.errors import UsageError
from clisup.model.events import SessionInit, TurnError
from clisup.model.lines.framing import Line
from clisup.model.prompts.content import text_of
from clisup.model.prompts.options import BRIDGE_SERVER, schema_text
from clisup.model.usage import Usage

__all__ = ["CodexExecAdapter", "CodexExecDecoder"]

_EVENTS = (
    "session_init", "message_start", "message", "message_stop", "tool_use", "tool_result", "permission_denied", "retry",
    "task", "status", "unparsed",
)  # fmt: skip


_SCHEMA = "output-schema.json"
_SPAWN = "spawn_agent"


class CodexExecAdapter(CodexBase):
    """`codex exec --json`, which only signals can interrupt."""

    kind = "codex-exec"
    login_keys = ("CODEX_API_KEY",)
    capabilities = Capabilities(
        deltas=False,
        images=True,
        running_usage=True,
        system_prompt=False,
        mcp=False,
        tools=True,
        permission_modes=PERMISSION_MODES,
        chosen_id=False,
        structured=True,
        tokens=TOKENS,
        events=tuple(sorted(_EVENTS)),
    )

    def launch(self, request: LaunchRequest) -> LaunchSpec:
        """Return argv, stdin, and files for the images and the schema.

        A system prompt and MCP servers would have to stand in argv, which every user can read: unsupported. argv holds only the start
        command of our own bridge.

        Raises UsageError for a prompt or value that codex cannot take.
        """
        check(request)
        if request.system_prompt is not None or request.system_prompt_file is not None:
            raise UsageError("cannot give codex exec a system prompt, because it takes none", kind="unsupported")
        if set(request.mcp_servers or ()) - ({BRIDGE_SERVER} if request.tools else set()):
            raise UsageError(
                "cannot give codex exec MCP servers, because it takes them in argv alone", kind="unsupported"
            )
        text, altered = _text_of(request)
        images = {image.file_name(number): image.raw for number, image in enumerate(request.images, 1)}
        schema = (
            {_SCHEMA: schema_text(strict_schema(request.output_schema))} if request.output_schema is not None else {}
        )
        bridge = bridge_launcher(request) if request.tools else {}
        session = [request.native_session_id] if request.resume and request.native_session_id else []
        words = [
            "exec",
            *(["resume"] if session else []),
            "--json",
            "--skip-git-repo-check",
            *QUIET,
            *_settings(request),
            *(bridge_words(request) if request.tools else ()),
            *(
                f"--image={request.scratch}/{name}" for name in images
            ),  # as two words, the flag would consume the next argument
            *(f"--output-schema={request.scratch}/{name}" for name in schema),
        ]
        return LaunchSpec(
            argv=(*request.command, *words, *request.args, *session, "-"),
            stdin=text,
            env=OWN_ENVIRONMENT,
            prompt_altered=altered,
            files={**images, **schema, **bridge},
        )

    def decoder(self, carried: Carried, request: LaunchRequest) -> CodexExecDecoder:
        """Return a decoder for one turn. `carried.usage` is the thread's total before the turn; None means unknown."""
        return CodexExecDecoder(carried.usage, request)


def _text_of(request: LaunchRequest) -> tuple[str, str | None]:
    """Return the text for codex, and a description of the changes: images come first, whatever their places were."""
    content = request.content or (request.prompt,)
    said = Said(content, [], None) if request.expand else hidden(content)
    first = tuple(sorted(content, key=lambda part: isinstance(part, str)))
    moved = "images put before the text" if first != content else None
    return text_of(said.content), ", ".join(words for words in (said.altered, moved) if words) or None


def _settings(request: LaunchRequest) -> list[str]:
    """Return overrides of the configuration: `resume` has no flags for them."""
    pairs = [f"sandbox_mode={toml_value(sandbox_of(request))}"]
    if request.model is not None:
        pairs.append(f"model={toml_value(request.model)}")
    if trust := trust_of(request):
        listed = ", ".join(f"{toml_value(path)} = {{trust_level = {toml_value(to)}}}" for path, to in trust.items())
        pairs.append(f"projects={{{listed}}}")
    return [word for pair in pairs for word in ("-c", pair)]


class CodexExecState(CodexTurnState, kw_only=True):
    """State of one turn of exec. `failure` is the last `error`, until codex goes on."""

    failure: CodexFailure | None = None


class CodexExecDecoder(CodexTurn):
    """Decoder of one `codex exec --json` process's stdout.

    exec ends a turn on signals alone, asks for no approvals, and keeps no background tasks after its end.
    """

    passes_on = staticmethod(exec_passes_on)

    def __init__(self, carried: Usage | None, request: LaunchRequest) -> None:
        super().__init__(request)
        self.state: CodexExecState = CodexExecState()
        self._carried = carried

    @property
    def open_work(self) -> OpenWork:
        """Tell the last `error`, after which codex has neither gone on nor ended the turn (codex #41984)."""
        return OpenWork({}, failure=None if self.state.failure is None else explain_report(self.state.failure))

    def decode_frame(self, frame: Frame, line: Line) -> Decoded | None:
        """Decode a frame. `turn.completed` and `turn.failed` end the turn."""
        kind = get_str(frame, "type")
        if kind in ("item.started", "item.updated", "item.completed"):
            self.state.failure = None
            events = self._item(get_dict(frame, "item"), completed=kind == "item.completed")
            return None if events is None else Decoded(events)
        if kind == "thread.started":
            return Decoded((SessionInit(native_session_id=get_str(frame, "thread_id")),))
        if kind == "turn.started":
            return NOTHING
        if kind == "error":
            # The turn goes on: codex reports reconnections so, and repeats `turn.failed` so.
            message = get_str(frame, "message") or ""
            retry = retry_of(message)
            self.state.failure = CodexFailure(message) if retry is None else None
            return Decoded((retry or status("error", message),))
        if kind == "turn.completed":
            return self._end(usage_of(get_dict(frame, "usage"), snake=True), None)
        if kind == "turn.failed":
            return self._end(None, explain_report(CodexFailure(get_str(get_dict(frame, "error"), "message") or "")))
        if kind is None:
            raise MalformedError("a frame without a type")
        return None

    def _end(self, total: Usage | None, error: TurnError | None) -> Decoded:
        """End the turn. A failed turn has no total, so the share of the next turn is unknown.

        exec's total lacks the tokens of sub-agents (0.171.0), so with one of them it is an estimate.
        """
        if self.state.ended:
            return NOTHING
        share = Usage() if total is None else total.since(self._carried)
        if share.source == "reported" and _SPAWN in self.state.calls.names.values():
            share = replace(share, source="estimated")
        return Decoded((), self._terminal(error, share, total))
