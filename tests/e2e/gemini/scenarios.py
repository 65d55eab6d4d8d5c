"""What the fake Gemini API answers, and how the real CLI is run for it: the table of scenarios.

`respond(body, n)` gives the reply to the streamed request number `n`, from 0; `side` answers everything else (the
router, loop checks). `runs` are the runs of one session for the recorder; the e2e tests use `respond` alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from tests.e2e.scenarios import Answer, Body, Cut, Event, Pause, Reply, Respond, Signal, Stall, Step


@dataclass(frozen=True)
class Chunk(Event):
    """One server-sent event, as this API writes it."""

    def encode(self) -> bytes:
        return b"data: " + json.dumps(self.data).encode() + b"\r\n\r\n"


@dataclass(frozen=True)
class Run:
    """One run of the CLI by the recorder, with the adapter's own launch spec made from `request`."""

    prompt: str = "Say hello."
    suffix: str = ""
    resume: bool = False
    request: dict[str, Any] = field(default_factory=dict)
    signal: Signal | None = None
    key: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    closed_port: bool = False


@dataclass(frozen=True)
class Scenario:
    name: str
    respond: Respond
    runs: tuple[Run, ...] = (Run(),)
    side: Body = field(default_factory=dict)
    recorded: bool = True
    note: str = ""


# --- builders -------------------------------------------------------------------------------------------------------


def usage(n: int) -> Body:
    """The usage of request `n`: distinct numbers; the prompt's count holds the cached ones, as the API tells them."""
    counts = {"promptTokenCount": 1000 + n, "cachedContentTokenCount": 300, "candidatesTokenCount": 40 + n}
    return {**counts, "thoughtsTokenCount": 7, "totalTokenCount": 1000 + n + 40 + n + 7}


def chunk(*parts: Body, finish: str | None = None, n: int | None = None) -> Chunk:
    candidate: Body = {"content": {"role": "model", "parts": list(parts)}, "index": 0}
    if finish:
        candidate["finishReason"] = finish
    data: Body = {"candidates": [candidate], "modelVersion": "fake-model", "responseId": f"response-{n}"}
    if n is not None:
        data["usageMetadata"] = usage(n)
    return Chunk(data)


def says(*pieces: str, n: int = 0, finish: str = "STOP") -> Reply:
    """Text in pieces; the last one ends the answer and tells the usage."""
    return [*(chunk({"text": piece}) for piece in pieces[:-1]), chunk({"text": pieces[-1]}, finish=finish, n=n)]


def call(name: str, arguments: Body) -> Body:
    return {"functionCall": {"name": name, "args": arguments}, "thoughtSignature": "c2lnbmF0dXJl"}


def calls(*functions: Body, text: str = "", n: int = 0) -> Reply:
    """Some text, then function calls."""
    before: Reply = [chunk({"text": text})] if text else []
    return [*before, chunk(*functions, finish="STOP", n=n)]


def error(status: int, code: str, message: str, *details: Body, headers: dict[str, str] | None = None) -> Answer:
    body = {"error": {"code": status, "message": message, "status": code, "details": list(details)}}
    return Answer(status, body, headers or {})


def always(*reply: Step) -> Respond:
    return lambda body, n: list(reply)


def in_turn(*replies: Reply) -> Respond:
    """The first reply to the first request, and so on; the last one from then on."""
    return lambda body, n: replies[min(n, len(replies) - 1)]


def remembers(body: Body, n: int) -> Reply:
    """Repeats what the user has said so far."""
    said = [
        part["text"]
        for turn in body.get("contents", [])
        if turn.get("role") == "user"
        for part in turn["parts"]
        if "text" in part
    ]
    return says("You said: " + " | ".join(text for text in said if not text.startswith("<session_context>")), n=n)


def shell(command: str, **more: Any) -> Body:
    return call("run_shell_command", {"command": command, "description": "a test", **more})


YOLO = {"permission_mode": "yolo"}
TEXT = ("Hello, ", "smile \U0001f600 ", "line\u2028separator.\nBye.")
QUOTA = {"@type": "type.googleapis.com/google.rpc.QuotaFailure",
         "violations": [{"quotaMetric": "generativelanguage.googleapis.com/generate_requests_per_model_per_day",
                         "quotaId": "GenerateRequestsPerDayPerProjectPerModel"}]}  # fmt: skip
RETRY_INFO = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "1s"}
ONCE = {"general": {"maxAttempts": 1}}  # the recorder's: ten tries take minutes
KEY_INVALID = {
    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
    "reason": "API_KEY_INVALID",
    "domain": "googleapis.com",
}
BLOCKED = {"promptFeedback": {"blockReason": "PROHIBITED_CONTENT"}, "usageMetadata": {"promptTokenCount": 5}}
WAIT = chunk({"text": "Wait"})
WRITE = call("write_file", {"file_path": "new.txt", "content": "x"})

AGAIN = """if grep -q '"stop_hook_active":true'; then echo '{}'; else echo '{"decision": "block", "reason": "In German."}'; fi"""


def hook(event: str, command: str) -> Run:
    """A run with a hook of the user's own settings."""
    return Run(settings={"hooks": {event: [{"hooks": [{"type": "command", "name": "a hook", "command": command}]}]}})


def tool(name: str, *functions: Body, then: str, before: str = "", run: Run | None = None, note: str = "") -> Scenario:
    """Function calls, all allowed unless `run` says otherwise, then an answer."""
    respond = in_turn(calls(*functions, text=before), says(then, n=1))
    return Scenario(name, respond, (run or Run(request=YOLO),), note=note)


def unrecorded(scenario: Scenario) -> Scenario:
    return replace(scenario, recorded=False)


def fails(name: str, status: int, code: str, message: str, *details: Body) -> Scenario:
    """An API that refuses every request; asked once."""
    headers = {"retry-after": "1"} if status == 429 else {}
    return Scenario(name, always(error(status, code, message, *details, headers=headers)), (Run(settings=ONCE),))


def ended(name: str, respond: Respond, sent: str, after: str, **request: Any) -> Scenario:
    """A run that the recorder ends by a signal."""
    return Scenario(name, respond, (Run(request=request, signal=Signal(sent, after)),))


def limited(delay: str) -> Reply:
    """A rate limit that says when to ask again."""
    return [error(429, "RESOURCE_EXHAUSTED", "Resource has been exhausted.", {**RETRY_INFO, "retryDelay": delay})]


_ALL = (
    # answers
    Scenario("text", always(*says(*TEXT))),
    Scenario("thinking", always(chunk({"text": "I should greet.", "thought": True}), *says("Thought."))),
    Scenario("max_tokens", always(*says("Cut short", finish="MAX_TOKENS"))),
    Scenario("refusal", always(chunk({"text": "I "}), chunk(finish="SAFETY", n=0))),
    Scenario("slash_prompt", remembers, (Run("/help and @secret.txt and me@example.org"),)),
    Scenario("memory", remembers, (Run("My name is Ada.", "_first"), Run("What did I say?", "_resume", resume=True))),
    # tools
    tool("tool_ok", shell("echo hi"), before="Let me look.", then="It said hi."),
    tool("tool_fail", call("read_file", {"file_path": "missing.txt"}), then="It failed."),
    tool("tool_exit_3", shell("echo no; exit 3"), then="Done.", note="the exit code is in no frame"),
    tool("parallel_tools", shell("echo one"), shell("echo two"), shell("echo three"), before="At once.", then="Done."),
    tool("unknown_tool", call("no_such_tool", {}), then="There is none."),
    tool("tool_denied", shell("echo hi"), then="I may not.", run=Run()),
    tool("write_denied", WRITE, then="I may not.", run=Run()),
    tool("plan_mode", WRITE, then="Only a plan.", run=Run(request={"permission_mode": "plan"})),
    # answers that are none
    Scenario("empty", always(chunk({"text": ""}, finish="STOP", n=0))),
    Scenario("thinking_only", always(chunk({"text": "Hm.", "thought": True}, finish="STOP", n=0))),
    Scenario("prompt_blocked", always(Chunk(BLOCKED))),
    Scenario("loop", always(*says(*(["the same words again and again. "] * 60)))),
    Scenario("no_finish", always(chunk({"text": "part"})), note="asked for again, and the deltas come again"),
    Scenario("cut_mid_stream", always(chunk({"text": "part"}), Pause(0.3), Cut())),
    Scenario(
        "max_turns",
        in_turn(calls(shell("echo hi")), calls(shell("echo hi again"), n=1), says("never", n=2)),
        (Run(request=YOLO, settings={"model": {"maxSessionTurns": 1}}),),
    ),
    Scenario("hook_again", in_turn(says("Hello."), says("Guten Tag.", n=1)), (hook("AfterAgent", AGAIN),)),
    Scenario("hook_blocks", always(*says("never")), (hook("BeforeAgent", """echo '{"decision": "block", "reason": "No."}'"""),)),
    # requests that fail
    fails("http_400_overflow", 400, "INVALID_ARGUMENT",
          "The input token count (1100000) exceeds the maximum number of tokens allowed (1048576)."),
    fails("http_400_key", 400, "INVALID_ARGUMENT", "API key not valid. Please pass a valid API key.", KEY_INVALID),
    fails("http_400_other", 400, "INVALID_ARGUMENT", "Invalid value at 'contents'."),
    fails("http_401", 401, "UNAUTHENTICATED", "Request had invalid authentication credentials."),
    fails("http_402", 402, "FAILED_PRECONDITION", "Payment is required."),
    fails("http_403", 403, "PERMISSION_DENIED", "The caller does not have permission."),
    fails("http_404", 404, "NOT_FOUND", "models/fake-model is not found for API version v1beta."),
    fails("http_404_plain", 404, "NOT_FOUND", "There is nothing of this name."),
    fails("http_422", 422, "INVALID_ARGUMENT", "The request cannot be processed."),
    fails("http_429", 429, "RESOURCE_EXHAUSTED", "Resource has been exhausted (e.g. check quota).", RETRY_INFO),
    fails("http_429_daily", 429, "RESOURCE_EXHAUSTED", "You exceeded your current quota, please check your plan.", QUOTA),
    fails("http_500", 500, "INTERNAL", "An internal error has occurred."),
    fails("http_503", 503, "UNAVAILABLE", "The model is overloaded. Please try again later."),
    fails("http_503_plain", 503, "UNAVAILABLE", "Try again later."),
    Scenario("http_502_plain", always(Answer(502, {}, {})), (Run(settings=ONCE),)),
    Scenario("http_500_once", in_turn([error(500, "INTERNAL", "An internal error.")], says("Recovered.", n=1))),
    Scenario("connection_refused", always(*says("never")), (Run(settings=ONCE, closed_port=True),)),
    # runs that are ended, or do not begin
    ended("stall_sigint", always(WAIT, Stall()), "SIGINT", "Wait"),
    ended("stall_sigterm", always(WAIT, Stall()), "SIGTERM", "Wait"),
    ended("stall_before_headers_sigterm", always(Stall()), "SIGTERM", '"role":"user"'),
    ended("tool_killed_sigterm", always(*calls(shell("sleep 60"))), "SIGTERM", "tool_use", **YOLO),
    ended("tool_killed_sigkill", always(*calls(shell("sleep 60"))), "SIGKILL", "tool_use", **YOLO),
    Scenario("bad_flag", always(*says("never")), (Run(request={"args": ("--no-such-flag",)}),)),
    Scenario("unknown_session", always(*says("never")), (Run(resume=True),)),
    Scenario("no_key", always(*says("never")), (Run(key=""),)),
    Scenario("untrusted", always(*says("never")), (Run(request={"setting_sources": None}),)),
    # for the daemon's tests alone
    unrecorded(Scenario("http_401_once", in_turn([error(401, "UNAUTHENTICATED", "No.")], says("Now you may.", n=1)))),
    unrecorded(Scenario("waits_for_a_limit", always(*limited("37s")))),
    unrecorded(Scenario("stalls_after_a_limit", in_turn(limited("1s"), [WAIT, Stall()]))),
    unrecorded(Scenario("stall", always(WAIT, Stall()))),
    unrecorded(tool("big_tool", shell("head -c 3000000 /dev/zero | tr '\\0' x"), then="That was much.")),
    unrecorded(tool("tool_env", shell("echo evil=${EVIL_VARIABLE:-none}"), then="Done.")),
    unrecorded(tool("background", shell("sleep 1000", is_background=True), then="It runs.")),
)  # fmt: skip
SCENARIOS: dict[str, Scenario] = {scenario.name: scenario for scenario in _ALL}
