"""Gemini CLI as an agent of the Agent Client Protocol (`gemini --acp`), for live sessions. Facts come from gemini 0.61.0.

gemini has no other mode for many turns. Model, permission mode and trust come by the same flags and variables as in headless
mode. session/new takes no id, and session/load fails in the minute of the session's beginning: it writes a new head into the
session's file before it looks for the session. `wire_id` keeps the two apart.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import ClassVar

from msgspec.structs import replace

from clisup.backends.acp.adapter import AcpAdapter, mcp_servers
from clisup.backends.acp.dialogue import AcpDecoder
from clisup.backends.base import Carried, LaunchRequest
from clisup.backends.frames import Frame, get_dict, get_dicts, get_int, get_str
from clisup.backends.gemini.result import UNANSWERED, explain_refusal
from clisup.backends.qwen.decoder import own_words
from clisup.model.events import TurnError, TurnErrorKind
from clisup.model.prompts.options import BRIDGE_SERVER, object_in
from clisup.model.usage import Usage

__all__ = ["GeminiAgent"]

_OURS = f"mcp_{BRIDGE_SERVER}_"
_CALL = re.compile(r"(.{1,256})__\1_\d{1,20}_\d{1,9}\Z|(.{1,256}?)__")  # the second one: the API has named the call


class GeminiAgent(AcpAdapter):
    """Words of `gemini --acp`. `GeminiAdapter` makes its argv and environment."""

    kind = "gemini"
    command_characters = ("/", "$")
    stops: ClassVar[Mapping[str, tuple[TurnErrorKind, str]]] = {
        **AcpAdapter.stops,
        # 0.61.0 says so only where the next request would not fit, and never of an answer that was cut
        "max_tokens": ("context_overflow", "the conversation no longer fits into the model's context window"),
    }

    def decoder(self, carried: Carried, request: LaunchRequest) -> AcpDecoder:
        """Return the dialogue of one turn. Flags have set the model and the mode."""
        plain = dataclasses.replace(request, model=None, permission_mode=None)
        return _GeminiDialogue(self, carried, plain, mcp_servers(request.mcp_servers), self.prompt(request)[0])

    def wire_id(self, session: str, *, resumed: bool) -> str:
        """Return the id, with a space before it for session/load.

        gemini strips the space to find the session, but not to name the file with the new head. Its clean-up ignores such names.
        """
        return f" {session}" if resumed else session

    def call(self, report: Frame) -> Frame:
        """Return a report with the name of the tool, with which gemini begins the id of a call.

        The begin of a call of an MCP tool has the arguments as its text, and a failure is a sentence around the tool's own text.
        Tools of the session's client get the same names as with other CLIs.
        """
        found = _CALL.match(get_str(report, "toolCallId") or "")
        if found is None:
            return report
        name = found[1] or found[2]
        if not name.startswith("mcp_"):
            return report | {"name": name}
        texts = [get_str(get_dict(item, "content"), "text") for item in get_dicts(report, "content")]
        text = texts[0] if len(texts) == 1 and texts[0] else ""
        if name.startswith(_OURS):  # the bridge may put an empty text before a result
            name, text = f"mcp__{BRIDGE_SERVER}__{name.removeprefix(_OURS)}", text.removeprefix("\n")
        named = report | {"name": name}
        if report.get("status") == "in_progress":
            return named if (arguments := object_in(text)) is None else named | {"rawInput": arguments}
        if not text:
            return named
        return named | {"content": [{"type": "content", "content": {"type": "text", "text": own_words(text)}}]}

    def usage(self, result: Frame) -> Usage | None:
        """Return the sums of the turn: the input has the cached tokens, and the output lacks the thoughts."""
        usage = super().usage(result)
        return None if usage is None else replace(usage, source="estimated")

    def failure(self, error: Frame, method: str) -> TurnError:
        """Return a failed prompt by the rules of headless mode: the message is the API's own, the code its HTTP status."""
        if method != "session/prompt":
            return super().failure(error, method)
        return explain_refusal(get_str(error, "message") or "", get_int(error, "code"))


class _GeminiDialogue(AcpDecoder):
    """Dialogue in which an end without an answer is a failure, as in headless mode."""

    def unanswered(self, reason: str) -> TurnError | None:
        answers = self.state.updates.text.strip() or self._request.expand
        return None if answers else UNANSWERED
