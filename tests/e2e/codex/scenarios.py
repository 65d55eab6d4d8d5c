"""What the fake Responses API answers for each scenario, and how the real codex is run for the recordings."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clisup.backends.base import ApprovalAnswer
from tests.e2e.codex.fake_api import (
    call,
    custom_call,
    error,
    events,
    failed,
    incomplete,
    limits,
    message,
    prompts,
    reasoning,
    refusal,
    said,
)
from tests.e2e.mcp_server import FILLED, FORM, LOGIN
from tests.e2e.scenarios import Body, Cut, Pause, Reply, Respond, Stall, in_turn
from tests.e2e.scenarios import Scenario as Script

MODEL = "gpt-5.2"  # one that gets plain function tools; the newest ones get a single tool that runs JavaScript
UNKNOWN_SESSION = "00000000-0000-4000-8000-000000000000"
FAR = 4102444800  # 2100: a recorded limit has not been lifted when it is replayed
MCP_SERVER = str(Path(__file__).resolve().parent.parent / "mcp_server.py")
DENY = ApprovalAnswer("deny")
BOTH = ("codex", "codex-exec")
SERVER = ("codex",)


@dataclass(frozen=True)
class Act:
    """Done `delay` seconds after the first line of stdout that contains `after`: a signal's name, `interrupt` or `steer`."""

    what: str
    after: str
    delay: float = 0.3
    prompt: str = "And this."


@dataclass(frozen=True)
class Run:
    """One process of codex.

    `session`: new, resume (the last new one), written (by clisup), unknown, or `same`: another turn of the last process.
    """

    suffix: str = ""
    prompt: str = "Say hello."
    session: str = "new"
    mode: str | None = "workspace-write"
    act: Act | None = None
    answer: ApprovalAnswer = DENY  # to every approval that codex asks for
    answers: dict[str, ApprovalAnswer | None] = field(
        default_factory=dict
    )  # to an approval of this `tool_name`; None: no answer
    request: dict[str, Any] = field(default_factory=dict)
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scenario:
    """`refused`: nothing listens where the API should be. `key`: whether codex gets one."""

    name: str
    respond: Respond
    runs: tuple[Run, ...] = (Run(),)
    kinds: tuple[str, ...] = BOTH
    refused: bool = False
    key: bool = True
    recorded: bool = True

    @property
    def script(self) -> Script:
        return Script(self.name, self.respond)


def say(*pieces: str, headers: dict[str, str] | None = None) -> Respond:
    return lambda body, n: said(n, message(*pieces), headers=headers)


def run(command: str, **more: Any) -> Respond:
    return lambda body, n: said(n, call("exec_command", cmd=command, **more))


def fail(status: int, words: str, headers: dict[str, str] | None = None, **more: Any) -> Respond:
    return lambda body, n: error(status, words, headers, **more)


def then_done(first: Respond) -> Respond:
    return in_turn(first, say("done"))


def remember(body: Body, n: int) -> Reply:
    """Quote the first prompt of the conversation: a resumed session proves its memory by it."""
    return said(n, message("You first said: ", (prompts(body) or ["(none)"])[0]))


def script(text: str) -> Respond:
    """The one tool of the newest models: a program that calls the others."""
    return lambda body, n: said(n, custom_call("exec", text))


def plan(body: Body, n: int) -> Reply:
    """The model calls the tool that shows its plan, which codex offers with `PLANS` alone."""
    steps = [{"step": "look", "status": "completed"}, {"step": "think", "status": "in_progress"}]
    return said(n, call("update_plan", plan=steps))


def think(body: Body, n: int) -> Reply:
    return said(n, reasoning("Let me", " look."), message("A picture."))


PLANS = ("-c", "tools.update_plan.enabled=true")


def delegate(body: Body, n: int) -> Reply:
    """Start a subagent, wait for it, and say what it said; the subagent asks the same fake."""
    if "For the child." in prompts(body)[-1:]:
        return said(n, message("The child says hello."))
    outputs = [entry["output"] for entry in body["input"] if entry.get("type") == "function_call_output"]
    if not outputs:
        return said(n, call("spawn_agent", namespace="multi_agent_v1", message="For the child."))
    if len(outputs) == 1:
        return said(n, call("wait_agent", namespace="multi_agent_v1", targets=[json.loads(outputs[0])["agent_id"]]))
    return said(n, message("The child is done."))


def add_patch(name: str) -> str:
    return f"apply_patch <<'EOF'\n*** Begin Patch\n*** Add File: {name}\n+hello\n*** End Patch\nEOF"


LIVE_RUN: dict[str, Any] = {"live": True, "prompt_id": "00000000-0000-4000-8000-000000000001"}
COMPACT: dict[str, Any] = {"prompt": "/compact", "session": "resume", "request": {"command_prompt": True}}


def steered(after: str, **more: Any) -> Run:
    """A live process that gets another prompt during its turn."""
    return Run(act=Act("steer", after), request=LIVE_RUN | more)


def slow_summary(body: Body, n: int) -> Reply:
    """Time for another prompt before the summary."""
    return [Pause(1.5), *said(n, message("The summary."))]


def _cut(whole: bool) -> Respond:
    def first(body: Body, n: int) -> Reply:
        steps = events(n, message("part", "ial"))
        return [*(steps if whole else steps[:-2]), Cut()]

    return first


cut_short = _cut(whole=False)


def _stall(body: Body, n: int) -> Reply:
    return [*events(n, message("part", "ial"))[:-2], Stall()]


def _limited_first(body: Body, n: int) -> Reply:
    return said(n, call("exec_command", cmd="true"), headers=limits(42))


_limited = in_turn(_limited_first, say("done", headers=limits(43)))
_LIMIT = fail(429, "The usage limit has been reached", limits(100), type="usage_limit_reached", resets_at=FAR)
CODE_MODE = {"model": "gpt-6.1-sol"}
_SCRIPT = """const one = await tools.exec_command({cmd: "echo out"});
const two = await tools.exec_command({cmd: "exit 4"});
text(one.output + two.exit_code);"""
TOOLS_SERVER = {"command": "python3", "args": [str(Path(MCP_SERVER).with_name("tool_server.py"))], "timeout": 720_000}
WITH_TOOLS: dict[str, Any] = {"mcp_servers": {"clisup": TOOLS_SERVER}, "tools": ("add", "fail", "rendezvous")}
SERVERS = {"good": {"command": "python3", "args": [MCP_SERVER]}, "bad": {"command": "/scratch/no-such-server"}}
ASKING = {"good": {**SERVERS["good"], "default_tools_approval_mode": "approve"}}
QUESTIONS = [
    {
        "id": "store",
        "header": "Store",
        "question": "Which database?",
        "options": [{"label": "SQLite", "description": "one file"}, {"label": "Postgres", "description": "a server"}],
    },
    {
        "id": "port",
        "header": "Port",
        "question": "Which port?",
        "options": [{"label": "80", "description": "a"}, {"label": "443", "description": "b"}],
    },
]
MAY_ASK = ("-c", "features.default_mode_request_user_input=true")
_ANSWERED = ApprovalAnswer("allow", updated_input={"answers": {"Which database?": "Postgres", "Which port?": "8080"}})
_ACCEPTED = ApprovalAnswer("allow", updated_input={"content": FILLED})


def choose(**arguments: Any) -> Respond:
    """The model calls the tool that asks its user."""
    return then_done(lambda body, n: said(n, call("choose", namespace="mcp__good", **arguments)))


def asking(answer: ApprovalAnswer | None, **more: Any) -> Run:
    return Run(request={"mcp_servers": ASKING}, answers={"mcp__good__elicitation": answer}, **more)


_ASKS, _ASKS_BY_FORM, _ASKS_BY_URL = choose(), choose(ask=FORM), choose(ask=LOGIN)
_QUESTIONS = then_done(lambda body, n: said(n, call("request_user_input", questions=QUESTIONS)))
SLOW = "for i in $(seq 60); do sleep 1; done; echo finished"
_NOT_RUN = (
    call("view_image", path="missing.png"),
    call("view_image", path="/tmp"),
    call("write_stdin", session_id=4711, chars="x"),
    call("wait_agent", namespace="multi_agent_v1", targets=["nobody"]),
    call("wait_agent", namespace="multi_agent_v1", targets=[]),
    call("spawn_agent", namespace="multi_agent_v1", message="Hi.", model="no-such-model"),
    call("read_mcp_resource", server="none", uri="x://y"),
)
_READ = "read words; echo $words"


def type_words(body: Body, n: int) -> Reply:
    """What is typed into a command that waits for it comes back as its output."""
    outputs = [str(entry["output"]) for entry in body["input"] if entry.get("type") == "function_call_output"]
    if not outputs:
        return said(n, call("exec_command", cmd=_READ, tty=True, yield_time_ms=300))
    if len(outputs) == 1:
        session = int(outputs[0].partition("session ID ")[2].split()[0])
        return said(n, call("write_stdin", session_id=session, chars="unsupported call, rejected by user\n"))
    return said(n, message("done"))


_SCENARIOS = (
    Scenario("text", say("Hello, smile \U0001f600 line\u2028separator.", "\nBye.")),
    Scenario("reasoning", lambda body, n: said(n, reasoning("Let me", " think."), message("Thought."))),
    Scenario("tool_ok", then_done(lambda body, n: said(n, message("Looking."), call("exec_command", cmd="echo out")))),
    Scenario("tool_fail", then_done(run("echo out; exit 3"))),
    Scenario(
        "parallel_tools",
        then_done(
            lambda body, n: said(n, call("exec_command", cmd="echo one"), call("exec_command", cmd="sleep 0.3; echo two"))
        ),
    ),
    Scenario("tool_denied", then_done(run("touch /usr/denied"))),
    Scenario(
        "tool_escalated", then_done(run("id", sandbox_permissions="require_escalated", justification="I want it"))
    ),
    Scenario(
        "approved",
        then_done(
            lambda body, n: said(
                n,
                call("exec_command", cmd="id -u; echo 'two words'", sandbox_permissions="require_escalated", justification="a"),
                call("exec_command", cmd=add_patch("../outside.txt")),
            )
        ),
        (Run(answer=ApprovalAnswer("allow")),),
        SERVER,
    ),
    Scenario(
        "approved_for_session",
        lambda body, n: said(n, call("exec_command", cmd="id -u", sandbox_permissions="require_escalated", justification="a"))
        if n < 2
        else said(n, message("done")),
        (Run(answer=ApprovalAnswer("allow", remember=True)),),
        SERVER,
    ),
    Scenario("patch_declined", then_done(run(add_patch("../outside.txt"))), kinds=SERVER),
    Scenario(
        "permissions",
        then_done(lambda body, n: said(n, call("request_permissions", permissions={"network": {"enabled": True}}, reason="to look"))),
        (Run(answer=ApprovalAnswer("allow"), args=("-c", "features.request_permissions_tool=true")),),
        SERVER,
    ),
    Scenario(
        "mcp_approved",
        lambda body, n: said(n, call("add", namespace="mcp__good", a=1, b=2)) if n < 2 else said(n, message("done")),
        (Run(request={"mcp_servers": {"good": SERVERS["good"]}}, answer=ApprovalAnswer("allow", remember=True)),),
        SERVER,
    ),
    Scenario("tool_unknown", then_done(lambda body, n: said(n, call("no_such_tool", a=1)))),
    Scenario(
        "tools_not_run",
        then_done(lambda body, n: said(n, *_NOT_RUN)),
        (Run(request={"mcp_servers": {"good": SERVERS["good"]}}),),
        SERVER,
    ),
    Scenario("tool_typed", type_words, kinds=SERVER),
    Scenario("tool_running_at_end", then_done(run(SLOW, yield_time_ms=300))),
    Scenario("code_mode", then_done(script(_SCRIPT)), (Run(request=CODE_MODE),)),
    Scenario("code_mode_error", then_done(script("no.such.thing();")), (Run(request=CODE_MODE),)),
    Scenario("subagent", delegate, kinds=BOTH),
    Scenario("file_change", then_done(run(add_patch("a.txt")))),
    Scenario(
        "mcp",
        then_done(lambda body, n: said(n, call("add", namespace="mcp__good", a=1, b=2))),
        (Run(request={"mcp_servers": {**SERVERS, "good": {**SERVERS["good"], "default_tools_approval_mode": "approve"}}}),),
        SERVER,
    ),
    Scenario(
        "mcp_structured",
        then_done(
            lambda body, n: said(
                n, call("count", namespace="mcp__good"), call("count", namespace="mcp__good", words="in words")
            )
        ),
        (Run(args=("-c", f'mcp_servers.good={{command="python3",args=["{MCP_SERVER}"],default_tools_approval_mode="approve"}}')),),
    ),
    Scenario(
        "mcp_refused",
        then_done(lambda body, n: said(n, call("add", namespace="mcp__good", a=1, b=2))),
        (Run(request={"mcp_servers": {"good": SERVERS["good"]}}),),
        SERVER,
    ),
    Scenario("elicitation_form", _ASKS_BY_FORM, (asking(_ACCEPTED),), SERVER),
    Scenario("elicitation_declined", _ASKS, (asking(DENY),), SERVER),
    Scenario("elicitation_url", _ASKS_BY_URL, (asking(ApprovalAnswer("allow")),), SERVER),
    Scenario(
        "elicitation_interrupt", _ASKS, (asking(None, act=Act("interrupt", '"message":"Which colour?"')),), SERVER
    ),
    Scenario("elicitation_full_access", _ASKS, (asking(DENY, mode="danger-full-access"),), SERVER),
    Scenario("user_input", _QUESTIONS, (Run(args=MAY_ASK, answers={"request_user_input": _ANSWERED}),), SERVER),
    Scenario("user_input_declined", _QUESTIONS, (Run(args=MAY_ASK),), SERVER),
    Scenario("user_input_interrupt", _QUESTIONS,
        (Run(args=MAY_ASK, answers={"request_user_input": None}, act=Act("interrupt", "item/tool/requestUserInput")),), SERVER),
    Scenario("user_input_off", _QUESTIONS, kinds=SERVER),
    Scenario(
        "tools",
        then_done(
            lambda body, n: said(
                n,
                call("add", namespace="mcp__clisup", a=2, b=3),
                call("fail", namespace="mcp__clisup"),
                call("rendezvous", namespace="mcp__clisup", n=1),
                call("rendezvous", namespace="mcp__clisup", n=2),
                call("nothing", namespace="mcp__clisup"),
            )
        ),
        (Run(mode=None, request=WITH_TOOLS),),
    ),
    Scenario(
        "tools_gone",
        say("never"),
        (Run(mode=None, request={**WITH_TOOLS, "mcp_servers": {"clisup": {"command": "/scratch/no-such-server"}}}),),
    ),
    Scenario(
        "resume",
        remember,
        (
            Run(prompt="My name is Ada.", request={"system_prompt": "Be brief."}),
            Run("_again", "What did I say?", "resume", request={"system_prompt": "Be brief."}),
        ),
        SERVER,
    ),
    Scenario("resume", remember, (Run(prompt="My name is Ada."), Run("_again", "What did I say?", "resume")), ("codex-exec",)),
    # a codex that has run before: the first one of a CODEX_HOME gives each file that it finds the configured provider
    Scenario("history", remember, (Run(), Run("_again", "What did I say?", "written")), SERVER),
    Scenario("unknown_session", say("never"), (Run(session="unknown"),)),
    Scenario("http_400", fail(400, "bad thing", code="invalid_value")),
    Scenario("http_400_prompt", fail(400, "Invalid prompt: it was flagged.", code="invalid_prompt")),
    Scenario("http_401", fail(401, "Incorrect API key provided")),
    Scenario("http_403", fail(403, "no access")),
    Scenario("http_404", fail(404, "The model does not exist", code="model_not_found")),
    Scenario("http_413", fail(413, "too large")),
    Scenario("http_429", fail(429, "Rate limit reached", {"retry-after": "1"}, code="rate_limit_exceeded")),
    Scenario("usage_limit", _LIMIT),
    Scenario("usage_limit_later", in_turn(_limited_first, _LIMIT), kinds=SERVER),
    Scenario(
        "usage_limit_resumed",
        in_turn(say("Hello."), _LIMIT),
        (Run(), Run("_again", "And now?", "resume")),
        SERVER,
    ),
    Scenario(
        "compacting",
        lambda body, n: said(n, call("exec_command", cmd="true")) if n < 2 else said(n, message(f"answer {n}")),
        (Run(args=("-c", "model_auto_compact_token_limit=1010")),),
        SERVER,
    ),
    Scenario(
        "compacting_resumed",
        lambda body, n: said(n, call("exec_command", cmd="true")) if n < 2 else said(n, message(f"answer {n}")),
        (
            Run(args=("-c", "model_auto_compact_token_limit=1010")),
            Run("_again", "And now?", "resume", args=("-c", "model_auto_compact_token_limit=1010")),
            Run("_third", "And then?", "resume", args=("-c", "model_auto_compact_token_limit=1010")),
        ),
    ),
    Scenario("no_quota", fail(429, "You exceeded your quota", type="insufficient_quota", code="insufficient_quota")),
    Scenario("no_plan", fail(429, "The plan has no codex", type="usage_not_included")),
    Scenario(
        "invalid_prompt", lambda body, n: [*events(n), failed(n, "invalid_prompt", "Invalid prompt: it was flagged.")]
    ),
    Scenario(
        "max_tokens_later", in_turn(run("true"), lambda body, n: [*events(n, message("half")), incomplete(n, "max_output_tokens")])
    ),
    Scenario(
        "overflow_later",
        in_turn(
            run("true"),
            lambda body, n: [*events(n), failed(n, "context_length_exceeded", "Your input exceeds the window")],
            say("Again."),
        ),
        (Run(), Run("_again", "And now?", "resume")),
    ),
    Scenario("http_500", fail(500, "boom")),
    Scenario("http_503", fail(503, "overloaded", code="server_is_overloaded")),
    Scenario("overflow", lambda body, n: [*events(n), failed(n, "context_length_exceeded", "Your input exceeds the window")]),
    Scenario(
        "stream_rate_limit",
        in_turn(
            lambda body, n: [
                *events(n, message("part")),
                failed(n, "rate_limit_exceeded", "Rate limit reached. Please try again in 0.2s."),
            ],
            say("the rest"),
        ),
    ),
    Scenario("max_tokens", lambda body, n: [*events(n, message("half")), incomplete(n, "max_output_tokens")]),
    Scenario("content_filter", lambda body, n: [*events(n, message("half")), incomplete(n, "content_filter")]),
    Scenario("refusal", lambda body, n: said(n, refusal("I will not."))),
    Scenario("rate_limits", _limited),
    Scenario("cut", in_turn(_cut(whole=False), say("The whole answer."))),
    Scenario("cut_after_message", in_turn(_cut(whole=True), say("The rest."))),
    Scenario("cut_for_good", _cut(whole=False)),
    Scenario("connection_refused", say("never"), refused=True),
    Scenario("no_key", say("never"), key=False),
    Scenario("bad_setting", say("never"), (Run(args=("-c", 'sandbox_mode="nonsense"')),)),
    Scenario("stall", _stall, recorded=False),
    Scenario("stall_interrupt", _stall, (Run(act=Act("interrupt", "item/agentMessage/delta")),), SERVER),
    Scenario("stall_sigint", _stall, (Run(act=Act("SIGINT", "agentMessage/delta")),), SERVER),
    Scenario("stall_sigterm", _stall, (Run(act=Act("SIGTERM", "agentMessage/delta")),), SERVER),
    Scenario("stall_sigint", _stall, (Run(act=Act("SIGINT", "turn.started")),), ("codex-exec",)),
    Scenario("stall_sigterm", _stall, (Run(act=Act("SIGTERM", "turn.started")),), ("codex-exec",)),
    Scenario("tool_interrupt", then_done(run(SLOW)), (Run(act=Act("interrupt", "unifiedExecStartup")),), SERVER),
    Scenario(
        "tools_interrupt",
        lambda body, n: said(n, call("hang", namespace="mcp__clisup"), call("exec_command", cmd=SLOW)),
        (Run(mode=None, request={**WITH_TOOLS, "tools": ("hang",)}, act=Act("interrupt", "unifiedExecStartup")),),
        SERVER,
    ),
    Scenario(
        "code_interrupt",
        script('await tools.exec_command({cmd: "sleep 30; echo out"});'),
        (Run(request=CODE_MODE, act=Act("interrupt", "unifiedExecStartup")),),
        SERVER,
    ),
    Scenario("plan", in_turn(plan, think), (Run(args=PLANS),)),
    Scenario("compact", in_turn(say("One."), say("The summary.")), (Run(), Run("_again", **COMPACT)), SERVER),
    Scenario("steer_tool", in_turn(run("sleep 1.5; echo out"), say("Both done.")), (steered("unifiedExecStartup"),), SERVER),
    Scenario("steer_text", in_turn(_stall, say("The answer.")), (steered("agentMessage/delta"),), SERVER),
    Scenario("steer_late", say("Hello."), (steered("turn/completed"),), SERVER),
    Scenario("steer_compaction", slow_summary, (steered("contextCompaction", command_prompt=True),), SERVER),
    Scenario(
        "model",
        say("Hello."),
        (Run(request=LIVE_RUN), Run("_changed", "And now?", "same", request={**LIVE_RUN, "model": "gpt-5.1"})),
        SERVER,
    ),
    Scenario("tool_killed", then_done(run(SLOW)), (Run(act=Act("SIGKILL", "seq 60"), mode="danger-full-access"),)),
)  # fmt: skip
SCENARIOS = {(kind, scenario.name): scenario for scenario in _SCENARIOS for kind in scenario.kinds}
