"""Params and results of the tool methods, for the client that serves tools and for the MCP bridge of a CLI."""

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
# As in a prompt: the discriminator looks at the type first, so that an error names the faulty block.
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
