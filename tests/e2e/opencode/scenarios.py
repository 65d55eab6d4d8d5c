"""What the fake Chat Completions API answers, and how the real opencode is run against it.

The fake and the builders of answers are qwen's (`tests.e2e.qwen`), whose API is the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.e2e.qwen.scenarios import (
    AT_ONCE,
    LATER,
    OVERFLOW,
    QUOTA,
    big,
    fail,
    message,
    partial,
    reasoning,
    remember,
    say,
    text,
    tool,
    uncounted,
    use,
)
from tests.e2e.scenarios import Body, Cut, Reply, Respond, Signal, Stall, in_turn

UNKNOWN_SESSION = "ses_0000000000ffe0000000000000"


@dataclass(frozen=True)
class OpencodeRun:
    """One process of the CLI. `name`: of its recording, if not the scenario's. `session`: new, resume (the last), or unknown."""

    name: str = ""
    prompt: str = "Say hello."
    session: str = "new"
    request: Body = field(default_factory=dict)
    signal: Signal | None = None


@dataclass(frozen=True)
class OpencodeScenario:
    """`settings` are the user's, beside those that name the fake; `url` is another endpoint than the fake's."""

    name: str
    respond: Respond
    runs: tuple[OpencodeRun, ...] = (OpencodeRun(),)
    settings: Body = field(default_factory=dict)
    url: str | None = None
    recorded: bool = True


def bash(tool_id: str, command: str, index: int = 0) -> list[Body]:
    return tool("bash", tool_id, {"command": command, "description": f"run {tool_id}"}, index)


def write(tool_id: str, path: str, index: int = 0) -> list[Body]:
    return tool("write", tool_id, {"filePath": path, "content": "x"}, index)


def with_subagent(body: Body, n: int) -> Reply:
    """The parent delegates once; the subagent, known by its prompt, reports."""
    users = str([entry for entry in body["messages"] if entry["role"] == "user"])
    if "SUBTASK" in users:
        return [*message(n, *text("sub", "agent reports 42"))]
    if "call_outer" in str(body["messages"]):
        return [*message(n, *text("The subagent said 42."))]
    brief = {"description": "count", "prompt": "SUBTASK: count", "subagent_type": "general"}
    return [*message(n, *tool("task", "outer", brief), finish="tool_calls")]


def filtered(body: Body, n: int) -> Reply:
    return [*message(n, *text("I can"), finish="content_filter")]


def mode(name: str) -> tuple[OpencodeRun, ...]:
    return (OpencodeRun(prompt=USE, request={"permission_mode": name}),)


def at(signal: str, after: str, delay: float = 0.5) -> OpencodeRun:
    """A run that is ended by a signal when the fake has got a request with this in it, `delay` seconds later."""
    return OpencodeRun(f"{after}_{signal.lower()}", USE, signal=Signal(signal, after, delay))


USE = "Use your tools."
ASKS: Body = {"permission": {"write": "ask", "edit": "ask"}}
RULE: Body = {"permission": {"bash": {"*": "allow", "rm *": "deny"}}}
KEY = "Incorrect API key provided: fake."

_ANSWERS = (
    OpencodeScenario("text", say("Hello, ", "smile \U0001f600 ", "line\u2028separator.\n", "Bye.")),
    OpencodeScenario("reasoning", lambda body, n: [*message(n, *reasoning("Let me ", "think."), *text("Thought."))]),
    OpencodeScenario("big_text", big, recorded=False),
    OpencodeScenario(
        "memory",
        remember,
        (OpencodeRun(prompt="My name is Ada."), OpencodeRun("resume", "What did I say?", "resume")),
    ),
    OpencodeScenario("no_usage", uncounted),
    OpencodeScenario("length", lambda body, n: [*message(n, *text("The answer ", "is"), finish="length")]),
    OpencodeScenario("empty", say()),
)
_TOOLS = (
    OpencodeScenario("tool_ok", in_turn(use(*bash("ok", "echo hi")), say("It said hi."))),
    OpencodeScenario("tool_fail", in_turn(use(*bash("bad", "echo oops >&2; exit 7")), say("It failed."))),
    OpencodeScenario(
        "parallel_tools", in_turn(use(*text("Both."), *bash("a", "echo a"), *bash("b", "echo b", 1)), say("Done."))
    ),
    OpencodeScenario("tool_rejected", in_turn(use(*text("I write."), *write("w", "x.txt")), say("No.")), settings=ASKS),
    OpencodeScenario("mode_auto", in_turn(use(*write("w", "x.txt")), say("Written.")), mode("auto"), ASKS),
    OpencodeScenario("mode_plan", in_turn(use(*write("w", "x.txt")), say("I may not.")), mode("plan")),
    OpencodeScenario("tool_forbidden", in_turn(use(*bash("rm", "rm -f x.txt")), say("I may not.")), settings=RULE),
    OpencodeScenario("unknown_tool", in_turn(use(*tool("no_such_tool", "n", {"a": 1})), say("There is none."))),
    OpencodeScenario("bad_tool_input", in_turn(use(*tool("bash", "n", '{"comm')), say("Broken."))),
    OpencodeScenario("subagent", with_subagent, (OpencodeRun(prompt=USE),)),
    OpencodeScenario("tool_waits", in_turn(use(*bash("w", "sleep 5")), say("done")), recorded=False),
)
_FAILURES = (
    OpencodeScenario("http_400", fail(400, "invalid_request_error", "Invalid parameter: tools.")),
    OpencodeScenario("http_401", fail(401, "invalid_api_key", KEY)),
    OpencodeScenario(
        "fails_later",
        in_turn(say("Hi."), fail(401, "invalid_api_key", KEY), say("Better.")),
        (
            OpencodeRun(),
            OpencodeRun("fails_later_401", session="resume"),
            OpencodeRun("fails_later_then", session="resume"),
        ),
    ),
    OpencodeScenario("http_403", fail(403, "forbidden", "Your account may not use this model.")),
    OpencodeScenario("http_404", fail(404, "model_not_found", "The model `fake-coder` does not exist.")),
    OpencodeScenario("http_429", fail(429, "rate_limit_exceeded", "Rate limit reached.", AT_ONCE)),
    OpencodeScenario("quota", fail(429, "insufficient_quota", QUOTA, AT_ONCE)),
    OpencodeScenario("http_500", fail(500, "server_error", "The server had an error.", AT_ONCE)),
    OpencodeScenario("http_503", fail(503, "overloaded", "The engine is overloaded.", AT_ONCE)),
    OpencodeScenario(
        "http_500_once", in_turn(fail(500, "server_error", "The server had an error.", AT_ONCE), say("Recovered."))
    ),
    OpencodeScenario(
        "waits_for_a_limit", fail(429, "rate_limit_exceeded", "Rate limit reached.", LATER), recorded=False
    ),
    OpencodeScenario("connection_refused", say("never"), url="http://127.0.0.1:9/v1"),
    OpencodeScenario("content_filter", filtered),
    OpencodeScenario(
        "overflow", in_turn(fail(400, "context_length_exceeded", OVERFLOW), say("The summary."), say("After it."))
    ),
    OpencodeScenario(
        "overflow_final",
        fail(400, "context_length_exceeded", OVERFLOW),
        settings={"compaction": {"auto": False}},
    ),
    OpencodeScenario("cut_mid_stream", in_turn(partial(Cut()), say("The whole answer."))),
    OpencodeScenario("cut_always", partial(Cut())),
    OpencodeScenario("unknown_session", say("never"), (OpencodeRun(session="unknown"),)),
    OpencodeScenario("unknown_model", say("never"), (OpencodeRun(request={"model": "fake/none"}),)),
    OpencodeScenario("bad_flag", say("never"), (OpencodeRun(request={"args": ["--no-such-flag"]}),)),
    OpencodeScenario("stall", lambda body, n: [Stall()], (at("SIGINT", "stall"), at("SIGTERM", "stall"))),
    OpencodeScenario("stall_mid_stream", partial(Stall()), recorded=False),
)
SCENARIOS: dict[str, Any] = {scenario.name: scenario for scenario in (*_ANSWERS, *_TOOLS, *_FAILURES)}
