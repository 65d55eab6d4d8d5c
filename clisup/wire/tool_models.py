"""Params and results of the methods about tools: of the client that serves them, and of the MCP bridge that a CLI starts."""

# Not `from __future__ import annotations`: as in models.py.

from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag

from clisup.model.prompts.tool_spec import ToolSpec
from clisup.wire.models import Params, Result, SaidBlock, SessionId

__all__ = [
    "AnswerParams",
    "BridgeCallParams",
    "BridgeCallResult",
    "BridgeHelloParams",
    "BridgeHelloResult",
    "CallId",
    "Content",
    "ToolCallParams",
    "ToolCancelledParams",
    "ToolResultParams",
    "ToolServeParams",
    "ToolServeResult",
]

CallId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]
ToolName = Annotated[str, Field(min_length=1, max_length=256)]
# As a prompt: told apart before they are read, so that what is wrong with a block is said.
Content = Annotated[
    Annotated[str, Tag("text")] | Annotated[list[SaidBlock], Tag("blocks")],
    Discriminator(lambda said: "blocks" if isinstance(said, list) else "text"),
]


class ToolServeParams(Params):
    session_id: SessionId


class ToolServeResult(Result):
    session_id: str
    tools: list[str]
    open: int


class ToolCallParams(Result):
    session_id: str
    turn_id: str | None
    call_id: str
    tool_use_id: str | None
    name: str
    input: dict[str, Any]


class AnswerParams(Params):
    content: Content
    is_error: bool = False


class ToolResultParams(AnswerParams):
    session_id: SessionId
    call_id: CallId


class ToolCancelledParams(Result):
    session_id: str
    call_id: str
    reason: str


class BridgeHelloParams(Params):
    token: Annotated[str, Field(max_length=256, repr=False)]


class BridgeHelloResult(Result):
    session_id: str
    tools: list[ToolSpec]
    max_frame_bytes: int
    max_calls: int


class BridgeCallParams(Params):
    call_id: CallId
    name: ToolName
    input: dict[str, Any] = {}
    tool_use_id: Annotated[str, Field(max_length=256)] | None = None


class BridgeCallResult(Result):
    content: Any
    is_error: bool
