"""What the fake Chat Completions API answers, and how the real Qwen Code is run against it.

A scenario is data plus one pure function, `respond(body, n) -> Reply`, as for claude (`tests.e2e.scenarios`, whose steps are
used here); `n` is the number of the request, from 0.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.scenarios import Answer, Body, Cut, Event, Reply, Respond, Signal, Stall, Step, in_turn

MODEL = "fake-coder"
UNKNOWN_SESSION = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Chunk(Event):
    """One `chat.completion.chunk` on the wire."""

    def encode(self) -> bytes:
        return f"data: {json.dumps(self.data)}\n\n".encode("ascii")


@dataclass(frozen=True)
class Done(Event):
    """The last line of a stream."""

    data: Body = field(default_factory=dict)

    def encode(self) -> bytes:
        return b"data: [DONE]\n\n"


def usage_of(n: int) -> Body:
    """The usage of request `n`: distinct numbers, distinct between requests too. `prompt_tokens` includes the cached ones."""
    return {
        "prompt_tokens": 1000 + n,
        "completion_tokens": 40 + n,
        "total_tokens": 1040 + 2 * n,
        "prompt_tokens_details": {"cached_tokens": 300 + n},
        "completion_tokens_details": {"reasoning_tokens": 7 + n},
    }


def chunk(n: int, delta: Body, finish: str | None = None) -> Chunk:
    choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
    return Chunk(_envelope(n, [choice]))


def _envelope(n: int, choices: list[Body]) -> Body:
    return {
        "id": f"chatcmpl-fake-{n:04}",
        "object": "chat.completion.chunk",
        "created": 1_700_000_000,
        "model": MODEL,
        "choices": choices,
    }


def message(n: int, *deltas: Body, finish: str = "stop", usage: Body | None = None) -> list[Event]:
    """A whole streamed answer: role, deltas, finish reason, usage, the end."""
    last = Chunk({**_envelope(n, []), "usage": usage or usage_of(n)})
    return [
        chunk(n, {"role": "assistant", "content": ""}),
        *(chunk(n, delta) for delta in deltas),
        chunk(n, {}, finish),
        last,
        Done(),
    ]


def text(*pieces: str) -> list[Body]:
    return [{"content": piece} for piece in pieces]


def reasoning(*pieces: str) -> list[Body]:
    return [{"reasoning_content": piece} for piece in pieces]


def tool(name: str, tool_id: str, arguments: Body | str, index: int = 0, piece: int = 24) -> list[Body]:
    """A tool call in pieces; `arguments` as a string goes out as it is, so that it may be no JSON at all."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    head = {"index": index, "id": f"call_{tool_id}", "type": "function", "function": {"name": name, "arguments": ""}}
    pieces = [raw[at : at + piece] for at in range(0, len(raw), piece)]
    return [
        {"tool_calls": [head]},
        *({"tool_calls": [{"index": index, "function": {"arguments": part}}]} for part in pieces),
    ]


def shell(tool_id: str, command: str, index: int = 0, **more: Any) -> list[Body]:
    arguments = {"command": command, "description": f"run {tool_id}", "is_background": False, **more}
    return tool("run_shell_command", tool_id, arguments, index)


def uncounted(body: Body, n: int) -> Reply:
    """An answer of an endpoint that tells no usage."""
    return [step for step in message(n, *text("Hi.")) if not (isinstance(step, Chunk) and "usage" in step.data)]


def say(*pieces: str) -> Respond:
    return lambda body, n: [*message(n, *text(*pieces))]


def use(*deltas: Body) -> Respond:
    return lambda body, n: [*message(n, *deltas, finish="tool_calls")]


def error(status: int, code: str, words: str, headers: dict[str, str] | None = None, **more: Any) -> Reply:
    """An error as OpenAI's API writes it."""
    return [Answer(status, {"error": {"message": words, "type": code, "code": code, **more}}, headers or {})]


def fail(status: int, code: str, words: str, headers: dict[str, str] | None = None) -> Respond:
    return lambda body, n: error(status, code, words, headers)


def whole(reply: Reply) -> Reply:
    """The same reply for a request without `stream`: the text of its chunks as one completion; other steps stay."""
    said = "".join(
        choice["delta"].get("content") or ""
        for step in reply
        if isinstance(step, Chunk)
        for choice in step.data["choices"]
    )
    others: Reply = [step for step in reply if not isinstance(step, Event)]
    choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    body = {**_envelope(0, []), "object": "chat.completion", "choices": [choice], "usage": usage_of(0)}
    return others or [Answer(200, body)]


def partial(*ending: Step) -> Respond:
    """Half of a text answer, then the ending."""
    return lambda body, n: [*message(n, *text("The answer ", "is"))[:3], *ending]


def big(body: Body, n: int) -> Reply:
    """2 MB of text in pieces of 1000 characters; no two are equal, because the CLI drops a piece that repeats the one before."""
    return [*message(n, *text(*(f"{piece:06}".ljust(999, "x") + "\n" for piece in range(2000))))]


def remember(body: Body, n: int) -> Reply:
    """Quote the first prompt of the conversation: a resumed session proves its memory by it."""
    users = [entry["content"] for entry in body["messages"] if entry["role"] == "user"]
    words = [part["text"] for content in users if isinstance(content, list) for part in content] + [
        content for content in users if isinstance(content, str)
    ]
    asked = [word for word in words if not word.lstrip().startswith("<")]
    return [*message(n, *text("You first said: ", asked[0] if asked else "(none)"))]


SCHEMA: Body = {"type": "object", "properties": {"answer": {"type": "integer"}}, "required": ["answer"]}


@dataclass(frozen=True)
class QwenRun:
    """One process of the CLI. `session`: new, resume or again (the last new id), unknown. `mcp`: its servers. `settings`: the user's."""

    suffix: str = ""
    prompt: str = "Say hello."
    session: str = "new"
    mode: str | None = None
    args: tuple[str, ...] = ()
    signal: Signal | None = None
    mcp: Body | None = None
    sources: str = "user"
    schema: Body | None = None
    settings: Body | None = None


@dataclass(frozen=True)
class QwenScenario:
    """A new session starts with a new fake; recordings are named `name + suffix`. `key` False: nobody is logged in."""

    name: str
    respond: Respond
    runs: tuple[QwenRun, ...] = (QwenRun(),)
    recorded: bool = True
    key: bool = True
    url: str | None = None
    note: str = ""


def with_subagent(body: Body, n: int) -> Reply:
    """The parent delegates once; the subagent, known by its prompt, reports."""
    raw = json.dumps(body["messages"])
    if "SUBTASK" in raw and "call_outer" not in raw:
        return [*message(n, *text("sub", "agent reports 42"))]
    if "call_outer" in raw:
        return [*message(n, *text("The subagent said 42."))]
    brief = {"description": "count", "prompt": "SUBTASK: count", "subagent_type": "general-purpose"}
    return [*message(n, *tool("agent", "outer", brief), finish="tool_calls")]


USE = "Use your tools."
YOLO = (QwenRun(prompt=USE, mode="yolo"),)
AT_ONCE = {"retry-after": "0.2"}  # the CLI waits as long as it is told, so a recording takes seconds
LATER = {"retry-after": "37"}
TICKS = "for i in $(seq 30); do sleep 1; done; echo finished"
OVERFLOW = "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens."
QUOTA = "You exceeded your current quota, please check your plan and billing details."
MCP = {"good": {"command": "python3", "args": ["HERE/mcp_server.py"]}, "bad": {"command": "/no/such/server"}}

TOOLS = {"tools": {"command": "python3", "args": ["HERE/tool_server.py"]}}


def hook(event: str, command: str) -> Body:
    """Settings with one hook."""
    return {"hooks": {event: [{"matcher": "*", "hooks": [{"type": "command", "name": "a hook", "command": command}]}]}}


def at(name: str, after: str, suffix: str = "", mode: str | None = None, delay: float = 0.5) -> QwenRun:
    """A run that is ended by a signal."""
    return QwenRun(suffix, USE, mode=mode, signal=Signal(name, after, delay))


_ANSWERS = (
    QwenScenario("text", say("Hello, ", "smile \U0001f600 ", "line\u2028separator.\n", "Bye.")),
    QwenScenario("reasoning", lambda body, n: [*message(n, *reasoning("Let me ", "think."), *text("Thought."))]),
    QwenScenario("big_text", big, recorded=False),
    QwenScenario(
        "memory", remember, (QwenRun(prompt="My name is Ada."), QwenRun("_resume", "What did I say?", "resume"))
    ),
    QwenScenario("no_usage", uncounted, (QwenRun(), QwenRun("_resume", session="resume"))),
    QwenScenario("length", lambda body, n: [*message(n, *text("The answer ", "is"), finish="length")]),
    QwenScenario("refusal", lambda body, n: [*message(n, *text("I can"), finish="content_filter")]),
    QwenScenario(
        "structured",
        in_turn(
            use(*tool("structured_output", "bad", {"answer": "many"})),
            use(*tool("structured_output", "good", {"answer": 42})),
        ),
        (QwenRun(schema=SCHEMA),),
    ),
    QwenScenario("looks_like_an_error", say("[API Error: ", "is what the CLI writes.")),
)
_TOOLS = (
    QwenScenario("tool_ok", in_turn(use(*shell("ok", "echo hi")), say("It said hi.")), YOLO),
    QwenScenario("tool_fail", in_turn(use(*shell("bad", "echo oops >&2; exit 7")), say("It failed.")), YOLO),
    QwenScenario(
        "parallel_tools",
        in_turn(use(*text("Both."), *shell("a", "echo a"), *shell("b", "echo b", 1)), say("Done.")),
        YOLO,
    ),
    QwenScenario(
        "tool_denied",
        in_turn(
            use(*tool("write_file", "w", {"file_path": "/tmp/x", "content": "x"}), *shell("s", "id", 1)),
            say("I may not."),
        ),
        (QwenRun(prompt=USE),),
    ),
    QwenScenario("unknown_tool", in_turn(use(*tool("no_such_tool", "n", {"a": 1})), say("There is none.")), YOLO),
    QwenScenario("bad_tool_input", in_turn(use(*tool("run_shell_command", "n", '{"comm')), say("Broken.")), YOLO),
    QwenScenario("subagent", with_subagent, (QwenRun(prompt=USE, mode="yolo", sources="user,project"),)),
    QwenScenario(
        "mcp",
        in_turn(use(*tool("mcp__good__add", "m", {"a": 2, "b": 3})), say("It is 5.")),
        (QwenRun(prompt="Add 2 and 3.", mode="yolo", mcp=MCP),),
    ),
    QwenScenario(
        "mcp_error",
        in_turn(use(*tool("mcp__tools__fail", "f", {"a": "' with response: ["})), say("It failed.")),
        (QwenRun(prompt="Fail.", mode="yolo", mcp=TOOLS),),
    ),
    QwenScenario("slow_tool", in_turn(use(*shell("slow", TICKS)), say("done")), YOLO, recorded=False),
    QwenScenario(
        "tool_killed",
        in_turn(use(*shell("slow", TICKS)), say("done")),
        (at("SIGINT", "message_stop", "_sigint", "yolo", 1.0), at("SIGTERM", "message_stop", "_sigterm", "yolo", 1.0)),
    ),
)
_FAILURES = (
    QwenScenario("http_400", fail(400, "invalid_request_error", "Invalid parameter: tools.")),
    QwenScenario("http_401", fail(401, "invalid_api_key", "Incorrect API key provided: fake.")),
    QwenScenario(
        "fails_later",
        in_turn(say("Hi."), fail(401, "invalid_api_key", "Incorrect API key provided: fake.")),
        (QwenRun(), QwenRun("_resume", session="resume")),
    ),
    QwenScenario("http_403", fail(403, "forbidden", "Your account may not use this model.")),
    QwenScenario("http_404", fail(404, "model_not_found", "The model `fake-coder` does not exist.")),
    QwenScenario("context_overflow", fail(400, "context_length_exceeded", OVERFLOW)),
    QwenScenario("http_429", fail(429, "rate_limit_exceeded", "Rate limit reached.", AT_ONCE)),
    QwenScenario("quota", fail(429, "insufficient_quota", QUOTA, AT_ONCE)),
    QwenScenario("http_500", fail(500, "server_error", "The server had an error."), note="takes 76 s"),
    QwenScenario("http_503", fail(503, "overloaded", "The engine is overloaded.", AT_ONCE)),
    QwenScenario("http_500_once", in_turn(fail(500, "server_error", "The server had an error."), say("Recovered."))),
    QwenScenario(
        "http_429_own_settings",
        in_turn(fail(429, "rate_limit_exceeded", "Rate limit reached."), say("Recovered.")),
        recorded=False,
    ),
    QwenScenario("waits_for_a_limit", fail(429, "rate_limit_exceeded", "Rate limit reached.", LATER), recorded=False),
    QwenScenario(
        "stalls_after_a_limit",
        in_turn(fail(429, "rate_limit_exceeded", "Rate limit reached.", AT_ONCE), partial(Stall())),
        recorded=False,
    ),
    QwenScenario("connection_refused", say("never"), url="http://127.0.0.1:9/v1"),
    QwenScenario("cut_mid_stream", in_turn(partial(Cut()), say("The whole answer."))),
    QwenScenario(
        "cut_reasoning", in_turn(lambda body, n: [*message(n, *reasoning("Hm ", "hm"))[:3], Cut()], say("Whole."))
    ),
    QwenScenario("cut_always", partial(Cut())),
    QwenScenario("empty", in_turn(say(), say("Not empty."))),
    QwenScenario("not_logged_in", say("never"), key=False),
    QwenScenario("unknown_session", say("never"), (QwenRun(session="unknown"),)),
    QwenScenario("session_in_use", say("Hi."), (QwenRun("_first"), QwenRun(session="again"))),
    QwenScenario(
        "max_turns", use(*shell("ok", "echo hi")), (QwenRun(prompt=USE, mode="yolo", args=("--max-session-turns=1",)),)
    ),
    QwenScenario(
        "max_tool_calls",
        use(*shell("ok", "echo hi")),
        (QwenRun(prompt=USE, mode="yolo", args=("--max-tool-calls=0",)),),
    ),
    QwenScenario(
        "hook_blocks", say("never"), (QwenRun(settings=hook("UserPromptSubmit", "echo 'not today' >&2; exit 2")),)
    ),
    QwenScenario("bad_flag", say("never"), (QwenRun(args=("--no-such-flag",)),)),
    QwenScenario(
        "stall",
        lambda body, n: [Stall()],
        (at("SIGINT", '"init"', "_sigint", delay=1.0), at("SIGTERM", '"init"', "_sigterm", delay=1.0)),
    ),
    QwenScenario(
        "stall_mid_stream",
        partial(Stall()),
        (
            at("SIGINT", '"text":"is"', "_sigint"),
            at("SIGTERM", '"text":"is"', "_sigterm"),
            at("SIGKILL", '"text":"is"', "_sigkill"),
        ),
    ),
)
SCENARIOS = {scenario.name: scenario for scenario in (*_ANSWERS, *_TOOLS, *_FAILURES)}
