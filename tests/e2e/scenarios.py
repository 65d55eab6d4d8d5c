"""What the fake Messages API answers: reply steps, builders for them, and the table of scenarios.

A scenario is data plus one pure function, `respond(body, n) -> Reply`: `n` is the number of the main request, from 0.
The data also says how the real CLI is run (prompt, argv, environment, signal), for the recorder and the e2e tests.
`CWD` and `HERE` in argv and tool inputs are filled in by whoever runs the CLI.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.e2e.dialogue import Cue

Body = dict[str, Any]

# --- the steps of a reply -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """A whole HTTP answer, not a stream. A `dict` body is sent as JSON."""

    status: int
    body: Body | str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


@dataclass(frozen=True)
class Event:
    """One server-sent event. The headers count on the first event of a reply only."""

    data: Body
    headers: dict[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        # ASCII escapes: a lone surrogate in a delta must go out as the API would send it
        return f"event: {self.data['type']}\ndata: {json.dumps(self.data)}\n\n".encode("ascii")


@dataclass(frozen=True)
class Pause:
    seconds: float


@dataclass(frozen=True)
class Stall:
    """Say nothing until the fake is released or closed, then drop the connection."""


@dataclass(frozen=True)
class Cut:
    """Drop the connection in the middle of the body."""


Step = Answer | Event | Pause | Stall | Cut
Reply = list[Step]
Respond = Callable[[Body, int], Reply]


def fold(reply: Reply) -> Reply:
    """The same reply for a request without `stream`: the events become one JSON message; stalls and cuts stay."""
    message: Body = {}
    blocks: list[Body] = []
    kept: Reply = []
    for step in reply:
        if not isinstance(step, Event):
            kept.append(step)
        elif step.data["type"] == "message_start":
            message = dict(step.data["message"])
        elif step.data["type"] == "content_block_start":
            blocks.append({**step.data["content_block"], "_json": ""})
        elif step.data["type"] == "content_block_delta":
            _apply(blocks[-1], step.data["delta"])
        elif step.data["type"] == "message_delta":
            message = {**message, **step.data["delta"], "usage": {**message["usage"], **step.data["usage"]}}
    content = [_finished(block) for block in blocks]
    return [*kept, Answer(200, {**message, "content": content})]


def _apply(block: Body, delta: Body) -> None:
    key = {"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"}.get(delta["type"])
    if key is None:
        block["_json"] += delta["partial_json"]
    else:
        block[key] = block.get(key, "") + delta[key]


def _finished(block: Body) -> Body:
    raw = block.pop("_json")
    return {**block, "input": json.loads(raw or "{}")} if block["type"] == "tool_use" else block


# --- builders -------------------------------------------------------------------------------------------------------


def usage_of(n: int) -> dict[str, int]:
    """The usage of main request `n`: four distinct numbers, distinct between requests too."""
    return {
        "input_tokens": 1000 + n,
        "cache_creation_input_tokens": 200 + n,
        "cache_read_input_tokens": 30000 + n,
        "output_tokens": 40 + n,
    }


def block(index: int, start: Body, deltas: Iterable[Body]) -> list[Event]:
    """The events of one content block."""
    return [
        Event({"type": "content_block_start", "index": index, "content_block": start}),
        *(Event({"type": "content_block_delta", "index": index, "delta": delta}) for delta in deltas),
        Event({"type": "content_block_stop", "index": index}),
    ]


def text(*pieces: str) -> tuple[Body, list[Body]]:
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]


def thinking(*pieces: str, signature: str = "c2lnbmF0dXJl") -> tuple[Body, list[Body]]:
    deltas: list[Body] = [{"type": "thinking_delta", "thinking": piece} for piece in pieces]
    return {"type": "thinking", "thinking": "", "signature": ""}, [
        *deltas,
        {"type": "signature_delta", "signature": signature},
    ]


def redacted() -> tuple[Body, list[Body]]:
    return {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="}, []


def tool(name: str, tool_id: str, arguments: Body | str, piece: int = 24) -> tuple[Body, list[Body]]:
    """A tool_use block; `arguments` as a string goes out as it is, so that it may be no JSON at all."""
    raw = arguments if isinstance(arguments, str) else json.dumps(arguments)
    start = {"type": "tool_use", "id": f"toolu_{tool_id}", "name": name, "input": {}}
    pieces = [raw[at : at + piece] for at in range(0, len(raw), piece)]
    return start, [{"type": "input_json_delta", "partial_json": part} for part in pieces]


def bash(tool_id: str, command: str, **more: Any) -> tuple[Body, list[Body]]:
    return tool("Bash", tool_id, {"command": command, "description": f"run {tool_id}", **more})


def message(
    body: Body,
    n: int,
    *blocks: tuple[Body, list[Body]],
    stop: str | None = None,
    headers: dict[str, str] | None = None,
) -> list[Event]:
    """A whole streamed message. The stop reason follows from the blocks unless it is given."""
    has_tool = any(start["type"] == "tool_use" for start, _ in blocks)
    usage = usage_of(n)
    envelope = {
        "id": f"msg_fake_{n:04}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model", "unknown"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {**usage, "output_tokens": 1},
    }
    events = [Event({"type": "message_start", "message": envelope}, headers or {})]
    for index, (start, deltas) in enumerate(blocks):
        events += block(index, start, deltas)
    reason = stop or ("tool_use" if has_tool else "end_turn")
    delta = {"stop_reason": reason, "stop_sequence": None}
    events.append(Event({"type": "message_delta", "delta": delta, "usage": usage}))
    return [*events, Event({"type": "message_stop"})]


def until(events: list[Event], event_type: str, count: int = 1) -> list[Event]:
    """The events up to and with the `count`-th one of a type: where a stall or a cut is to come."""
    places = [at for at, event in enumerate(events) if event.data["type"] == event_type]
    return events[: places[count - 1] + 1]


def error(status: int, kind: str, words: str, headers: dict[str, str] | None = None) -> Reply:
    return [Answer(status, {"type": "error", "error": {"type": kind, "message": words}}, headers or {})]


def bland_reply(path: str, body: Body) -> Reply:
    """The answer to whatever is no main request: token counts, titles, probes, telemetry."""
    if path.startswith("/v1/messages/count_tokens"):
        return [Answer(200, {"input_tokens": 4321})]
    if path.startswith("/v1/messages"):
        return [*message(body, 9000, text("ok"))]
    return [Answer(200, {})] if path == "/" else error(404, "not_found_error", "the fake has no such path")


def prompts(body: Body) -> list[str]:
    """The texts that users wrote, in order, without the reminders that the CLI puts before them."""
    found: list[str] = []
    for entry in body.get("messages", []):
        content = entry["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if entry["role"] == "user":
            found += [part["text"] for part in parts if part["type"] == "text"]
    return [words for words in found if not words.lstrip().startswith("<")]


def in_turn(*replies: Callable[[Body, int], Reply]) -> Respond:
    """The first request gets the first reply, and so on; the last one is repeated."""
    return lambda body, n: replies[min(n, len(replies) - 1)](body, n)


def say(*pieces: str, headers: dict[str, str] | None = None) -> Respond:
    return lambda body, n: [*message(body, n, text(*pieces), headers=headers)]


def use(*blocks: tuple[Body, list[Body]]) -> Respond:
    return lambda body, n: [*message(body, n, *blocks)]


def fail(status: int, kind: str, words: str, headers: dict[str, str] | None = None) -> Respond:
    return lambda body, n: error(status, kind, words, headers)


# --- how the CLI is run ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Signal:
    """Sent to the CLI alone, `delay` seconds after the first stdout line that contains `after`."""

    name: str
    after: str
    delay: float = 0.5


@dataclass(frozen=True)
class Run:
    """One process of the CLI. `session`: new, resume or again (the last new id), fork, unknown, none.

    With a `dialogue` it is a live one, and the prompt counts for nothing.
    """

    suffix: str = ""
    prompt: str = "Say hello."
    session: str = "new"
    args: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    signal: Signal | None = None
    dialogue: tuple[Cue, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """`auth`: key, oauth or none. A new session starts with a new fake; recordings are named `name + suffix`."""

    name: str
    respond: Respond
    runs: tuple[Run, ...] = (Run(),)
    auth: str = "key"
    recorded: bool = True
    needs_root: bool = False
    note: str = ""


BYPASS = ("--permission-mode", "bypassPermissions")
TOOLS = (Run(prompt="Use your tools.", args=BYPASS, env={"IS_SANDBOX": "1"}),)
ONE_RETRY = {"CLAUDE_CODE_MAX_RETRIES": "1"}
UNKNOWN_SESSION = "00000000-0000-4000-8000-000000000000"
SCHEMA = '{"type":"object","properties":{"answer":{"type":"number"}},"required":["answer"]}'
# both servers in one configuration: a bad one must not take the good one with it
MCP_CONFIG = json.dumps(
    {
        "mcpServers": {
            "good": {"command": "python3", "args": ["HERE/mcp_server.py"]},
            "bad": {"command": "CWD/no-such-server", "args": []},
        }
    }
)
ASKING_SERVER = (
    *("--mcp-config", json.dumps({"mcpServers": {"good": {"command": "python3", "args": ["HERE/mcp_server.py"]}}})),
    *("--strict-mcp-config", "--allowedTools", "mcp__good__choose"),
)
# what the daemon gives a CLI where the session's client has tools: our server's name, a rule for it, and the same entry
TOOLS_SERVER = {"command": "python3", "args": ["HERE/tool_server.py"], "alwaysLoad": True, "timeout": 720_000}
WITH_TOOLS = (
    *("--mcp-config", json.dumps({"mcpServers": {"clisup": TOOLS_SERVER}}), "--strict-mcp-config"),
    "--allowedTools=mcp__clisup",
)
EPOCH_RESET = "4102444800"  # far away, so that a recorded limit has not been lifted when it is replayed


def unified(status: str, **more: str) -> dict[str, str]:
    """The rate-limit headers that an OAuth account gets."""
    headers = {"status": status, "reset": EPOCH_RESET, "representative-claim": "five_hour", **more}
    return {f"anthropic-ratelimit-unified-{name.replace('_', '-')}": value for name, value in headers.items()}


AGAIN = """grep -q '"stop_hook_active":true' || { echo 'In German.' >&2; exit 2; }"""


def hook(event: str, command: str) -> tuple[str, ...]:
    """A hook of the user's own settings, given by a flag."""
    hooks = {event: [{"matcher": "*", "hooks": [{"type": "command", "command": command}]}]}
    return ("--settings", json.dumps({"hooks": hooks}))


def tool_run(suffix: str, signal: Signal) -> Run:
    return Run(suffix, "Use your tools.", args=BYPASS, env={"IS_SANDBOX": "1"}, signal=signal)


def ticks(seconds: int) -> str:
    """A shell loop: the CLI itself refuses a bare long sleep."""
    return f"for i in $(seq {seconds}); do sleep 1; done; echo finished"


# --- replies that need more than a line -----------------------------------------------------------------------------


def remember(body: Body, n: int) -> Reply:
    """Quote the first prompt of the conversation: a resumed session proves its memory by it."""
    asked = prompts(body) or ["(none)"]
    return [*message(body, n, text("You first said: ", asked[0]))]


def partial(*ending: Step) -> Respond:
    """Half of a text answer, then the ending."""
    return lambda body, n: [*until(message(body, n, text("The answer ", "is")), "content_block_delta", 2), *ending]


def tool_then_cut(body: Body, n: int) -> Reply:
    return [*until(message(body, n, bash("cut", "echo ran")), "content_block_stop"), Pause(0.5), Cut()]


def only_pings(body: Body, n: int) -> Reply:
    pings: Reply = [step for _ in range(600) for step in (Event({"type": "ping"}), Pause(2))]
    return [*until(message(body, n, text("x")), "message_start"), *pings]


def with_subagent(body: Body, n: int) -> Reply:
    """The parent delegates once; the subagent, known by its prompt, runs one command and reports."""
    has_result = "tool_result" in json.dumps(body.get("messages", []))
    if any(words.startswith("SUBTASK") for words in prompts(body)):
        blocks = text("sub", "agent reports 42") if has_result else bash("inner", "echo inner")
    elif has_result:
        blocks = text("The subagent said 42.")
    else:
        brief = {"description": "count", "prompt": "SUBTASK: count", "subagent_type": "general-purpose"}
        blocks = tool("Agent", "outer", {**brief, "run_in_background": False})
    return [*message(body, n, blocks)]


def with_async_agents(
    *agents: float, then: Respond | None = None, slow: float = 0, tool: str = "echo inner"
) -> Respond:
    """The parent starts agents as 2.1.330 does by default, in the background. Each runs the command `tool`, thinks for so many
    seconds and reports. The parent answers each report, and the last one with `then`; `slow` is how long its first answer takes.
    """

    def respond(body: Body, n: int) -> Reply:
        own = [words for words in prompts(body) if words.startswith("SUBTASK")]
        if own:
            return _async_agent(body, n, own[0], tool)
        told = json.dumps(body.get("messages", []))
        reports = sum(f"<result>agent {k} reports" in told for k in range(len(agents)))
        if reports == len(agents):
            return (then or say("All agents reported."))(body, n)
        if "async_agent_launched" in told or "Async agent launched" in told:
            events = message(body, n, text(f"I wait; {reports} of {len(agents)} ", "reported."))
            return [*events[:3], Pause(slow), *events[3:]]
        return [*message(body, n, *[_brief(k, seconds) for k, seconds in enumerate(agents)])]

    return respond


def _brief(k: int, seconds: float) -> tuple[Body, list[Body]]:
    words = {"description": f"count {k}", "prompt": f"SUBTASK {k} {seconds}", "subagent_type": "general-purpose"}
    return tool("Agent", f"outer{k}", words)


def with_nested_agents(body: Body, n: int) -> Reply:
    """The parent starts an agent in the background, which starts another one and reports when that one has reported."""
    own = [words for words in prompts(body) if words.startswith("SUBTASK")]
    told = json.dumps(body.get("messages", []))
    if own and own[0].split()[1] == "1":
        return _async_agent(body, n, own[0])
    launched, reported = "launched successfully" in told, "agent 1 reports" in told
    if own:
        blocks = text("agent 0 reports, too") if reported else text("I wait.") if launched else _brief(1, 1)
        return [*message(body, n, blocks)]
    done = "agent 0 reports" in told
    blocks = text("Both reported.") if done else text("I wait for agent 0.") if launched else _brief(0, 0)
    return [*message(body, n, blocks)]


def _async_agent(body: Body, n: int, prompt: str, tool: str = "echo inner") -> Reply:
    _, k, seconds = prompt.split()[:3]
    if "tool_result" in json.dumps(body.get("messages", [])):
        return [Pause(float(seconds)), *message(body, n, text(f"agent {k} reports 42"))]
    return [*message(body, n, bash(f"inner{k}", tool))]


def first_model_overloaded(body: Body, n: int) -> Reply:
    if "sonnet" in body.get("model", ""):
        return [*message(body, n, text("from the fallback"))]
    return error(529, "overloaded_error", "Overloaded")


def stopped(reason: str, *pieces: str) -> Respond:
    return lambda body, n: [*message(body, n, text(*pieces), stop=reason)]


def broken_stream(body: Body, n: int) -> Reply:
    failure = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    return [*until(message(body, n, text("The answer ", "is")), "content_block_delta", 2), Event(failure)]


def big_text(size: int) -> Respond:
    line = "".join(chr(97 + at % 26) for at in range(1999)) + "\n"
    return lambda body, n: [*message(body, n, text(*[line] * (size // len(line))))]


def big_write(size: int) -> Respond:
    arguments = {"file_path": "big.txt", "content": "0123456789abcde\n" * (size // 16)}
    return in_turn(use(tool("Write", "big", arguments, piece=2000)), say("written"))


def overloaded_then(words: str) -> Respond:
    return in_turn(fail(529, "overloaded_error", "Overloaded"), say(words))


EDITS = (Run(prompt="Write a file.", args=("--permission-mode", "acceptEdits")),)
STALLED = '"is"'  # the text delta after which the partial replies stop
UNPARSABLE = '{"command": "echo hi", "descr'
OVERLOADED = fail(529, "overloaded_error", "Overloaded")
LIMITED = fail(429, "rate_limit_error", "Too many requests", {"retry-after": "1"})
FORBIDDEN = fail(403, "permission_error", "Your account does not have permission")
UNAUTHORISED = fail(401, "authentication_error", "invalid x-api-key")
BACKGROUND = in_turn(use(bash("bg", ticks(2), run_in_background=True)), say("Started it."), say("It has finished."))
# A loop in a session of its own that no SIGTERM ends, beside a tool that runs on. Its parent leaves at once: the CLI kills
# what it can still find below the tool's shell by itself, 1.5 s after a SIGINT.
LOOP = "sh -c 'trap \"\" TERM; while :; do sleep 1; done' >/dev/null 2>&1 &); "
STUBBORN = "(setsid " + LOOP
BARE = "(setsid env -i PATH=$PATH " + LOOP
LONG_BASH = in_turn(use(bash("long", ticks(60))), say("done"))
PARALLEL = use(bash("p1", ticks(2) + " p1"), bash("p2", "echo p2"), bash("p3", "sleep 1; echo p3"))

_TABLE = (
    Scenario("text", say("Hello, ", "smile \ud83d", "\ude00 ", "line\u2028separator", ".\nBye.")),
    Scenario("thinking", use(thinking("Let me ", "think."), redacted(), text("Thought."))),
    Scenario("tool_ok", in_turn(use(text("I run it."), bash("ok", "echo hi")), say("It said hi.")), TOOLS),
    Scenario("tool_fail", in_turn(use(bash("bad", "echo out; echo err >&2; exit 7")), say("It failed.")), TOOLS),
    Scenario("parallel_tools", in_turn(PARALLEL, say("All three.")), TOOLS),
    Scenario(
        "tool_denied", in_turn(use(tool("Write", "no", {"file_path": "no.txt", "content": "x"})), say("I may not."))
    ),
    Scenario("unknown_tool", in_turn(use(tool("NoSuchTool", "un", {"a": 1})), say("No such tool.")), TOOLS),
    Scenario("bad_tool_input", in_turn(use(tool("Bash", "inv", {"cmd": 1})), say("Wrong input.")), TOOLS),
    Scenario("unparsable_tool_input", in_turn(use(tool("Bash", "up", UNPARSABLE)), say("Sorry.")), TOOLS),
    Scenario(
        "memory",
        remember,
        (
            Run(prompt="My number is 7421."),
            Run("_resume", "What is my number?", "resume"),
            Run("_resume_again", "And again?", "resume"),
            Run("_fork", "In the fork?", "fork"),
        ),
    ),
    Scenario("http_401", UNAUTHORISED, (Run(signal=Signal("SIGTERM", '"api_retry"', 10)),)),
    Scenario("http_401_final", UNAUTHORISED, (Run(env=ONE_RETRY),)),
    Scenario("http_401_oauth", fail(401, "authentication_error", "Invalid bearer token"), auth="oauth"),
    Scenario("http_403", FORBIDDEN),
    Scenario(
        "oauth_revoked",
        fail(403, "permission_error", "OAuth token has been revoked. Please obtain a new token."),
        auth="oauth",
    ),
    Scenario(
        "http_404", fail(404, "not_found_error", "model: no-such-model"), (Run(args=("--model", "no-such-model")),)
    ),
    Scenario("http_429_short", in_turn(LIMITED, LIMITED, say("At last."))),
    Scenario("http_429_final", LIMITED, (Run(env=ONE_RETRY),)),
    Scenario(
        "http_429_wait_30",
        fail(429, "rate_limit_error", "Too many requests", {"retry-after": "30"}),
        recorded=False,
        note="a wait that the CLI would sit out",
    ),
    Scenario("http_429_long", fail(429, "rate_limit_error", "Too many requests", {"retry-after": "3600"})),
    Scenario(
        "http_429_oauth_limit",
        fail(429, "rate_limit_error", "Limit reached", unified("rejected", overage_status="rejected")),
        auth="oauth",
    ),
    Scenario("rate_limit_ok_oauth", say("Fine.", headers=unified("allowed")), auth="oauth"),
    Scenario(
        "rate_limit_warning_oauth",
        say(
            "Nearly.",
            headers=unified(
                "allowed_warning",
                **{"5h-status": "allowed_warning", "5h-reset": EPOCH_RESET},
                **{"5h-utilization": "0.93", "5h-surpassed-threshold": "0.9"},
            ),
        ),
        auth="oauth",
    ),
    Scenario("http_500_once", in_turn(fail(500, "api_error", "Internal server error"), say("Recovered."))),
    Scenario("http_500_final", fail(500, "api_error", "Internal server error"), (Run(env=ONE_RETRY),)),
    Scenario(
        "http_502_html",
        lambda b, n: [Answer(502, "<html>Bad Gateway</html>", {"content-type": "text/html"})],
        (Run(env=ONE_RETRY),),
    ),
    Scenario("http_529", OVERLOADED, (Run(env={"CLAUDE_CODE_MAX_RETRIES": "2"}),)),
    Scenario("http_529_once", overloaded_then("Recovered.")),
    Scenario("fallback_model", first_model_overloaded, (Run(args=("--fallback-model", "claude-sonnet-4-5")),)),
    Scenario(
        "billing", fail(400, "invalid_request_error", "Your credit balance is too low to access the Anthropic API.")
    ),
    Scenario(
        "http_400_too_long", fail(400, "invalid_request_error", "prompt is too long: 250000 tokens > 200000 maximum")
    ),
    Scenario("http_400_other", fail(400, "invalid_request_error", "messages.0: something is wrong")),
    Scenario("http_413", fail(413, "request_too_large", "Request exceeds the maximum size")),
    Scenario("connection_lost", say("never"), (Run(env={"ANTHROPIC_UNIX_SOCKET": "/nowhere/socket", **ONE_RETRY}),)),
    Scenario("connection_refused", say("never"), (Run(env={"ANTHROPIC_BASE_URL": "http://127.0.0.1:9", **ONE_RETRY}),)),
    Scenario(
        "stall_before_headers",
        lambda body, n: [Stall()],
        (
            Run("_sigterm", signal=Signal("SIGTERM", '"requesting"', 2)),
            Run("_sigint", signal=Signal("SIGINT", '"requesting"', 2)),
        ),
    ),
    Scenario(
        "stall_mid_stream",
        partial(Stall()),
        (
            Run("_sigterm", signal=Signal("SIGTERM", STALLED, 1)),
            Run("_sigint", signal=Signal("SIGINT", STALLED, 1)),
            Run("_sigkill", signal=Signal("SIGKILL", STALLED, 1)),
        ),
    ),
    Scenario("stall_then_answer", in_turn(partial(Stall()), say("The whole answer.")), recorded=False),
    Scenario("pings_only", only_pings, (Run(signal=Signal("SIGTERM", '"ping"', 21)),)),
    Scenario("cut_mid_stream", in_turn(partial(Pause(0.3), Cut()), say("The whole answer."))),
    Scenario("cut_after_tool", in_turn(tool_then_cut, say("Went on.")), TOOLS),
    Scenario("sse_error_event", in_turn(broken_stream, say("The whole answer."))),
    Scenario("refusal", in_turn(stopped("refusal", "I"), say("Something else."))),
    Scenario("refusal_final", stopped("refusal", "I")),
    Scenario(
        "structured_then_529",
        in_turn(use(tool("StructuredOutput", "wrong", {"answer": "many"})), OVERLOADED),
        (Run(args=("--json-schema", SCHEMA), env=ONE_RETRY),),
    ),
    Scenario("context_window", stopped("model_context_window_exceeded", "A long ans")),
    Scenario("max_tokens", in_turn(stopped("max_tokens", "A long ans"), say("wer."))),
    Scenario("empty_message", in_turn(use(), say("After all."))),
    Scenario("big_text", big_text(3_000_000), recorded=False, note="3 MB: for live tests only"),
    Scenario("big_text_40k", big_text(40_000), note="reduced variant of big_text"),
    Scenario("big_tool_input", big_write(2_000_000), EDITS, recorded=False, note="2 MB: for live tests only"),
    Scenario("big_tool_input_40k", big_write(40_000), EDITS, note="reduced variant of big_tool_input"),
    Scenario("subagent", with_subagent, TOOLS),
    Scenario("async_agent", with_async_agents(1), TOOLS),
    Scenario("async_agent_fails", with_async_agents(1, then=FORBIDDEN), TOOLS),
    Scenario("async_agents", with_async_agents(1, 4), TOOLS),
    Scenario("async_agents_at_once", with_async_agents(1, 1, 1, 1), TOOLS),
    Scenario("async_agents_nested", with_nested_agents, TOOLS),
    Scenario("background_bash", BACKGROUND, TOOLS),
    Scenario(
        "background_bash_states",
        BACKGROUND,
        (Run(args=BYPASS, env={"IS_SANDBOX": "1", "CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}),),
    ),
    Scenario(
        "background_killed",
        in_turn(use(bash("bg", ticks(60), run_in_background=True)), say("Started it.")),
        (
            tool_run("_sigterm", Signal("SIGTERM", '"terminal_reason"', 1)),
            tool_run("_sigint", Signal("SIGINT", '"terminal_reason"', 1)),
        ),
    ),
    Scenario("slow_bash", in_turn(use(bash("slow", ticks(5))), say("done")), TOOLS),
    Scenario(
        "hung_bash",
        in_turn(use(bash("hung", "mkfifo f; read x < f")), say("never")),
        recorded=False,
        note="waits for ever for a writer: for live tests only",
    ),
    Scenario("silent_bash_40", in_turn(use(bash("mute", ticks(40))), say("done")), TOOLS, recorded=False),
    Scenario("stubborn_child", in_turn(use(bash("stub", STUBBORN + ticks(60))), say("done")), TOOLS, recorded=False),
    Scenario("bare_child", in_turn(use(bash("bare", BARE + ticks(60))), say("done")), TOOLS, recorded=False),
    Scenario("tool_heartbeat", in_turn(use(bash("hb", ticks(33))), say("done")), TOOLS),
    Scenario(
        "tool_killed",
        LONG_BASH,
        (
            tool_run("_sigint", Signal("SIGINT", '"task_started"', 1)),
            tool_run("_sigterm", Signal("SIGTERM", '"task_started"', 1)),
        ),
    ),
    Scenario(
        "surrogate",
        in_turn(use(bash("raw", "printf 'a\\377\\376b\\000c\\033d'")), say("half \ud83d", "\ude00.")),
        TOOLS,
    ),
    Scenario(
        "mcp",
        in_turn(use(tool("mcp__good__add", "mcp", {"a": 2, "b": 3})), say("It is 5.")),
        (
            Run(
                prompt="Add 2 and 3.",
                args=("--mcp-config", MCP_CONFIG, "--strict-mcp-config", "--allowedTools", "mcp__good__add"),
            ),
        ),
    ),
    Scenario(
        "tools",
        in_turn(
            use(
                tool("mcp__clisup__add", "add", {"a": 2, "b": 3}),
                tool("mcp__clisup__fail", "fail", {}),
                tool("mcp__clisup__rendezvous", "one", {"n": 1}),
                tool("mcp__clisup__rendezvous", "two", {"n": 2}),
                tool("mcp__clisup__nothing", "none", {}),
            ),
            say("Five."),
        ),
        (
            Run(prompt="Use your tools.", args=WITH_TOOLS),
            Run("_plan", "Use your tools.", args=(*WITH_TOOLS, "--permission-mode", "plan")),
        ),
        note="tools that the session's client runs",
    ),
    Scenario(
        "max_turns",
        use(bash("ok", "echo hi")),
        (Run(prompt="Go.", args=(*BYPASS, "--max-turns", "1"), env={"IS_SANDBOX": "1"}),),
    ),
    Scenario(
        "max_budget",
        use(bash("ok", "echo hi")),
        (Run(args=(*BYPASS, "--max-budget-usd", "0.001"), env={"IS_SANDBOX": "1"}),),
    ),
    Scenario("unknown_session", say("never"), (Run(session="unknown"),)),
    Scenario("session_in_use", say("Hi."), (Run("_first"), Run(session="again"))),
    Scenario("not_logged_in", say("never"), auth="none"),
    Scenario("root_bypass", say("never"), (Run(args=BYPASS),), needs_root=True),
    Scenario("no_prompt", say("never"), (Run(prompt=""),)),
    Scenario(
        "compact",
        say("A ", "summary."),
        (
            Run(prompt="One."),
            Run("_second", "Two.", "resume"),
            Run("_slash", "/compact", "resume"),
            Run("_after", "Three.", "resume"),
        ),
    ),
    Scenario(
        "compact_fails",
        in_turn(say("One."), FORBIDDEN, say("Three.")),
        (Run(prompt="One."), Run("_slash", "/compact", "resume"), Run("_after", "Three.", "resume")),
    ),
    Scenario("hook_blocks", say("never"), (Run(args=hook("UserPromptSubmit", "echo 'not today' >&2; exit 2")),)),
    Scenario(
        "hook_stops",
        say("never"),
        (Run(args=hook("UserPromptSubmit", """echo '{"continue": false, "stopReason": "enough"}'""")),),
    ),
    Scenario("hook_again", in_turn(say("Hello."), say("Guten Tag.")), (Run(args=hook("Stop", AGAIN)),)),
    Scenario(
        "hook_denies",
        in_turn(use(bash("no", "echo hi")), say("I may not.")),
        (
            Run(
                prompt="Use your tools.",
                args=(*BYPASS, *hook("PreToolUse", "echo 'not this' >&2; exit 2")),
                env={"IS_SANDBOX": "1"},
            ),
        ),
    ),
    Scenario("slash_prompt", say("never"), (Run(prompt="/cost"),)),
    Scenario("slash_unknown", say("It reached the model."), (Run(prompt="/nosuchcommand please"),)),
    Scenario("slash_escaped", say("It reached the model."), (Run(prompt=" /cost"),)),
    Scenario("slash_clear", say("Hi."), (Run(prompt="/clear"),)),
    Scenario("safe_mode", say("Hi."), (Run(args=("--safe-mode",)),)),
    Scenario(
        "json_schema",
        in_turn(use(tool("StructuredOutput", "so", {"answer": 42})), say("Done.")),
        (Run(args=("--json-schema", SCHEMA)),),
    ),
    Scenario("json_schema_text", say("Forty-two."), (Run(args=("--json-schema", SCHEMA)),)),
)
SCENARIOS = {scenario.name: scenario for scenario in _TABLE}
