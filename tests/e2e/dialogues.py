"""The dialogues with a live claude that are recorded: many turns of one process, and all that is said to it meanwhile.

`DIALOGUES` is the table; the replies come from the builders of `tests.e2e.scenarios`, and so does the way of a run.
"""

from __future__ import annotations

from typing import Any

from tests.e2e.dialogue import END, IDLE, Cue, Say, Send, Wait, after, answer, answer_with, ask, refuse, say, uuid_of
from tests.e2e.mcp_server import FILLED, FORM, LOGIN
from tests.e2e.scenarios import (
    ASKING_SERVER,
    BYPASS,
    FORBIDDEN,
    STALLED,
    Body,
    Pause,
    Reply,
    Respond,
    Run,
    Scenario,
    Stall,
    bash,
    hook,
    in_turn,
    message,
    partial,
    remember,
    text,
    ticks,
    tool,
    use,
    with_async_agents,
    with_nested_agents,
)
from tests.e2e.scenarios import say as reply

STATES = {"CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS": "1"}
SANDBOX = {**STATES, "IS_SANDBOX": "1"}
FIRST, SECOND, THIRD = say("First.", "one"), say("Second.", "two"), say("Third.", "three")
NOW = say("Second.", "two", priority="now")
DELTA = after("content_block_delta")
TOOL_CALLED = after('"stop_reason":"tool_use"')
ASKED = after('"can_use_tool"')
ANSWERED = after('"type":"control_response"')
RESULT = after('"type":"result"')
REFUSED = refuse("clisup does not answer elicitation")
INTERRUPT = ask("interrupt")
NEXT = (SECOND, IDLE, END)
MAKE = {"command": "mkdir made", "description": "run t1"}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
REMEMBERED = {
    "type": "addRules",
    "rules": [{"toolName": "Bash", "ruleContent": "mkdir:*"}],
    "behavior": "allow",
    "destination": "session",
}
QUESTION: Body = {
    "questions": [
        {
            "question": "Which?",
            "header": "Pick",
            "options": [{"label": "A", "description": "a"}, {"label": "B", "description": "b"}],
            "multiSelect": False,
        }
    ]
}


def slowly(*pieces: str) -> Respond:
    """The first piece, time for whatever is said meanwhile, and the rest."""

    def respond(body: Body, n: int) -> Reply:
        events = message(body, n, text(*pieces))
        return [*events[:3], Pause(1.5), *events[3:]]

    return respond


def slowly_to_a_tool(body: Body, n: int) -> Reply:
    events = message(body, n, text("I will ", "look."), bash("t1", "echo hi"))
    return [*events[:3], Pause(1.5), *events[3:]]


def background(seconds: int) -> Respond:
    return use(bash("bg", ticks(seconds), run_in_background=True))


def live(
    name: str,
    respond: Respond,
    *cues: Cue,
    bypass: bool = False,
    args: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
) -> Scenario:
    """A scenario of one live process; `bypass` lets every tool run unasked."""
    more, switches = (BYPASS, SANDBOX) if bypass else ((), STATES)
    return Scenario(
        f"live_{name}", respond, (Run(args=(*more, *args), env={**switches, **(env or {})}, dialogue=cues),)
    )


def process(suffix: str, session: str, *cues: Cue) -> Run:
    return Run(suffix, session=session, env=STATES, dialogue=cues)


def said(*contents: Any) -> tuple[Cue, ...]:
    """Each content as a message of its own, one turn after the other, and the end."""
    turns = [(say(content, f"content {number}"), IDLE) for number, content in enumerate(contents)]
    return (*(cue for turn in turns for cue in turn), END)


_BOTH_TOOLS = in_turn(use(bash("t1", "mkdir a"), bash("t2", "mkdir b")), reply("Done."))
_LONG_TOOL = in_turn(use(bash("t1", ticks(30))), reply("Next."))
_MAKES = in_turn(use(bash("t1", MAKE["command"])), reply("Done."), reply("Next."))
_ONE_TWO = in_turn(slowly("One ", "two."), reply("Second."), reply("Third."))
_STALLS = in_turn(partial(Stall()), reply("Next."))
_SHORT_TOOL = in_turn(use(bash("t1", ticks(1))), reply("After the tool."), reply("Later."))
_ASKS_ITS_USER = in_turn(use(tool("mcp__good__choose", "choose", {})), reply("Chosen."))
_ASKS_BY_FORM = in_turn(use(tool("mcp__good__choose", "choose", {"ask": FORM})), reply("Chosen."))
_ASKS_BY_URL = in_turn(use(tool("mcp__good__choose", "choose", {"ask": LOGIN})), reply("Chosen."))
_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
_NO_FIRST = "grep -q First && { echo 'not today' >&2; exit 2; } || true"
_DENIED_ONCE = in_turn(FORBIDDEN, reply("Next."))

_TABLE = (
    live("text", in_turn(reply("Hel", "lo."), reply("Again.")), FIRST, IDLE, *NEXT),
    live("no_uuid", reply("Hello."), say("First."), IDLE, END),
    live("same_uuid", reply("Hello."), FIRST, IDLE, FIRST, IDLE, *NEXT),
    # What is said while a turn runs
    live("merged", _ONE_TWO, FIRST, DELTA, SECOND, THIRD, IDLE, END),
    live("at_once", _ONE_TWO, FIRST, SECOND, IDLE, END),
    live("injected", _SHORT_TOOL, FIRST, TOOL_CALLED, SECOND, IDLE, END, bypass=True),
    live("injected_after_text", in_turn(slowly_to_a_tool, reply("After.")), FIRST, DELTA, SECOND, IDLE, END, bypass=True),
    live("later", _SHORT_TOOL, FIRST, TOOL_CALLED, say("Second.", "two", priority="later"), IDLE, END, bypass=True),
    live("now", _ONE_TWO, FIRST, DELTA, NOW, IDLE, END),
    # in its first half second the tool would be aborted; after that it may end
    live("now_in_tool", in_turn(use(bash("t1", ticks(2))), reply("Second.")), FIRST, TOOL_CALLED, Wait(1), NOW, IDLE, END,
         bypass=True),
    live("priorities", _ONE_TWO, FIRST, DELTA, say("Second.", "two", priority="later"),
         say("Third.", "three", priority="later"), say("Fourth.", "four"), IDLE, END),
    live("withdrawn", _ONE_TWO, FIRST, DELTA, SECOND, ask("cancel_async_message", message_uuid=uuid_of("two")), ANSWERED,
         ask("cancel_async_message", "too late", message_uuid=uuid_of("one")), ANSWERED, IDLE, END),
    live("withdrawn_too_soon", in_turn(reply("One."), reply("Three.")), FIRST, IDLE, SECOND,
         ask("cancel_async_message", message_uuid=uuid_of("two")), IDLE, THIRD, IDLE, END),
    # Interrupts
    live("interrupt", _STALLS, FIRST, after(STALLED), INTERRUPT, IDLE, *NEXT),
    live("interrupt_no_text", in_turn(lambda body, n: [Stall()], reply("Next.")), FIRST, after('"requesting"'), Wait(0.5), INTERRUPT,
         IDLE, *NEXT),
    live("interrupt_tool", _LONG_TOOL, FIRST, TOOL_CALLED, Wait(0.5), INTERRUPT, IDLE, *NEXT, bypass=True),
    live("interrupt_idle", in_turn(reply("One."), reply("Two.")), INTERRUPT, ANSWERED, FIRST, IDLE, ask("interrupt", "again"),
         ANSWERED, *NEXT),
    live("interrupt_queued", _STALLS, FIRST, after(STALLED), SECOND, after('"queued"'), INTERRUPT, IDLE, END),
    live("interrupt_all", _STALLS, FIRST, after(STALLED), SECOND, after('"queued"'), ask("interrupt", cancel_queued=True), IDLE,
         THIRD, IDLE, END),
    live("interrupt_too_soon", in_turn(reply("One."), reply("Two.")), FIRST, IDLE, SECOND, INTERRUPT, IDLE, END),
    live("interrupt_injected", in_turn(use(bash("t1", ticks(1))), partial(Stall())), FIRST, TOOL_CALLED, SECOND, after(STALLED),
         INTERRUPT, IDLE, END, bypass=True),
    # Permissions
    live("ask_allow", _MAKES, FIRST, ASKED, answer("allow"), IDLE, *NEXT),
    live("ask_allow_other_input", _MAKES, FIRST, ASKED, answer("allow", updatedInput={"command": "echo other"}), IDLE, END),
    live("ask_remember", in_turn(use(bash("t1", "mkdir a")), use(bash("t2", "mkdir b")), reply("Done.")), FIRST, ASKED,
         answer("allow", updatedPermissions=[REMEMBERED]), IDLE, END),
    live("ask_deny", _MAKES, FIRST, ASKED, answer("deny", message="not today"), IDLE, END),
    live("ask_deny_no_message", _MAKES, FIRST, ASKED, answer("deny"), IDLE, END),
    live("ask_deny_interrupt", _MAKES, FIRST, ASKED, answer("deny", message="stop", interrupt=True), IDLE, *NEXT),
    live("ask_write", in_turn(use(tool("Write", "w", {"file_path": "new.txt", "content": "x"})), reply("Done.")), FIRST, ASKED,
         answer("allow"), IDLE, END),
    live("ask_end", _MAKES, FIRST, ASKED, END),
    live("ask_interrupt", _MAKES, FIRST, ASKED, INTERRUPT, IDLE, *NEXT),
    live("ask_twice", _BOTH_TOOLS, FIRST, ASKED, answer("allow"), ASKED, answer("allow"), IDLE, END),
    live("ask_queued", _MAKES, FIRST, ASKED, SECOND, after('"queued"'), answer("allow"), IDLE, END),
    live("ask_sigterm", _MAKES, FIRST, ASKED, Send("SIGTERM")),
    live("question", in_turn(use(tool("AskUserQuestion", "q", QUESTION)), reply("Thanks.")), FIRST, ASKED,
         answer("allow", updatedInput={**QUESTION, "answers": {"Which?": "A"}}), IDLE, END),
    # What an MCP server asks its user
    live("elicitation", _ASKS_ITS_USER, FIRST, after('"elicitation"'), answer_with(action="decline"), IDLE, END, args=ASKING_SERVER),
    live("elicitation_form", _ASKS_BY_FORM, FIRST, after('"elicitation"'), answer_with(action="accept", content=FILLED), IDLE, END,
         args=ASKING_SERVER),
    live("elicitation_url", _ASKS_BY_URL, FIRST, after('"elicitation"'), answer_with(action="accept"), IDLE, END, args=ASKING_SERVER),
    live("elicitation_interrupt", _ASKS_ITS_USER, FIRST, after('"elicitation"'), INTERRUPT, IDLE, *NEXT, args=ASKING_SERVER),
    live("elicitation_refused", _ASKS_ITS_USER, FIRST, after('"elicitation"'), REFUSED, IDLE, END, args=ASKING_SERVER),
    # Background tasks
    live("background", in_turn(background(2), reply("Started it."), reply("It has finished."), reply("Next.")), FIRST, IDLE, IDLE,
         *NEXT, bypass=True),
    live("background_beside", in_turn(background(4), reply("Started it."), reply("Second."), reply("It has finished.")), FIRST, IDLE,
         SECOND, IDLE, IDLE, END, bypass=True),
    live("background_race", in_turn(background(2), reply("Started it."), slowly("It has ", "finished."), reply("Second.")), FIRST,
         IDLE, after('"task_notification"'), SECOND, IDLE, END, bypass=True),
    live("background_in_turn", in_turn(background(2), reply("Started it."), slowly("Sec", "ond."), reply("It has finished.")), FIRST,
         IDLE, Wait(1.2), SECOND, IDLE, END, bypass=True),
    live("background_in_tool", in_turn(background(1), reply("Started it."), use(bash("t1", ticks(2))), reply("Both.")), FIRST, IDLE,
         SECOND, IDLE, END, bypass=True),
    live("background_interrupt", in_turn(background(2), partial(Stall()), reply("It has finished.")), FIRST, after(STALLED), INTERRUPT,
         IDLE, IDLE, END, bypass=True),
    live("background_end", in_turn(background(2), reply("Started it."), reply("It has finished.")), FIRST, IDLE, END, bypass=True),
    # Sub-agents in the background, as they are by default
    live("async_agent", with_async_agents(1), FIRST, IDLE, *NEXT, bypass=True),
    live("async_agents", with_async_agents(1, 4), FIRST, IDLE, END, bypass=True),
    live("async_agents_at_once", with_async_agents(1, 1, 1, 1), FIRST, IDLE, *NEXT, bypass=True),
    live("async_agents_nested", with_nested_agents, FIRST, IDLE, *NEXT, bypass=True),
    live("async_agent_beside", with_async_agents(4), FIRST, RESULT, SECOND, RESULT, IDLE, END, bypass=True),
    live("async_agent_early", with_async_agents(0, slow=2), FIRST, IDLE, END, bypass=True),
    live("async_agent_interrupt", with_async_agents(4), FIRST, RESULT, INTERRUPT, ANSWERED, IDLE, END, bypass=True),
    live("async_agent_follow_up_interrupt", with_async_agents(1, then=partial(Stall())), FIRST, RESULT, after(STALLED), INTERRUPT,
         IDLE, END, bypass=True),
    live("async_agent_end", with_async_agents(3), FIRST, RESULT, END, bypass=True),
    live("async_agent_fails", with_async_agents(1, then=FORBIDDEN), FIRST, IDLE, END, bypass=True),
    # Control requests
    live("controls", in_turn(reply("One."), reply("Two.")), ask("set_model", "m0", model="claude-sonnet-4-5"), ANSWERED, FIRST, IDLE,
         ask("set_model", "m1", model="claude-opus-5-5"), ANSWERED, ask("set_model", "m2", model=5), ANSWERED,
         ask("set_permission_mode", "p1", mode="plan"), ANSWERED, ask("set_permission_mode", "p2", mode="bypassPermissions"), ANSWERED,
         ask("set_permission_mode", "p3", mode="nonsense"), ANSWERED, ask("set_permission_mode", "p4", mode="default"), ANSWERED,
         ask("set_max_thinking_tokens", "t1", max_thinking_tokens=1000), ANSWERED, ask("nonsense"), ANSWERED, *NEXT),
    live("controls_busy", _ONE_TWO, FIRST, DELTA, ask("set_model", model="claude-sonnet-4-5"), ANSWERED,
         ask("set_permission_mode", mode="acceptEdits"), ANSWERED, IDLE, *NEXT),
    live("context_usage", reply("Hello."), FIRST, IDLE, ask("get_context_usage"), ANSWERED, END),
    live("initialize", reply("Hello."), ask("initialize"), ANSWERED, FIRST, IDLE, END),
    live("end_session", _STALLS, FIRST, after(STALLED), SECOND, after('"queued"'), ask("end_session")),
    live("compact", in_turn(reply("One."), reply("<summary>Two words.</summary>"), reply("Three.")), FIRST, IDLE,
         say("/compact", "two"), IDLE, THIRD, IDLE, END),
    live("compact_queued", in_turn(slowly("One ", "two."), reply("<summary>Words.</summary>"), reply("Three.")), FIRST, DELTA,
         say("/compact", "two"), THIRD, IDLE, END),
    live("compact_fails", in_turn(reply("One."), FORBIDDEN, reply("Three.")), FIRST, IDLE, say("/compact", "two"), IDLE, THIRD, IDLE,
         END),
    live("compact_interrupt", in_turn(reply("One."), partial(Stall()), reply("Three.")), FIRST, IDLE, say("/compact", "two"),
         after('"compacting"'), Wait(1), INTERRUPT, IDLE, THIRD, IDLE, END),
    live("compact_nothing", reply("never"), say("/compact", "one"), IDLE, END),
    # Contents
    live("image", reply("A dot."), *said([{"type": "text", "text": "Look:"}, _IMAGE, {"type": "text", "text": "What is it?"}])),
    live("slash", reply("It reached the model."), *said("/cost", "\n/cost", [_IMAGE, {"type": "text", "text": "/cost"}])),
    # How it ends
    live("end_busy", _ONE_TWO, FIRST, DELTA, SECOND, END),
    live("end_at_once", reply("never"), END),
    live("sigterm_idle", reply("One."), FIRST, IDLE, Send("SIGTERM")),
    live("sigterm", _STALLS, FIRST, after(STALLED), SECOND, after('"queued"'), Send("SIGTERM")),
    live("sigint", _STALLS, FIRST, after(STALLED), SECOND, after('"queued"'), Send("SIGINT")),
    live("not_json", reply("One."), FIRST, IDLE, Say("this is not JSON")),
    live("wrong_role", reply("never"), Say('{"type":"user","message":{"role":"assistant","content":"x"}}')),
    live("http_403", _DENIED_ONCE, FIRST, IDLE, *NEXT),
    Scenario("live_hook_blocks", reply("Second."),
             (Run(args=hook("UserPromptSubmit", _NO_FIRST), env=STATES, dialogue=(FIRST, IDLE, *NEXT)),)),
    live("http_403_last", FORBIDDEN, FIRST, IDLE, END),
    Scenario(
        "live_memory",
        remember,
        (
            process("", "new", say("Remember 42.", "one"), IDLE, END),
            process("_resume", "resume", say("What?", "two"), IDLE, END),
            process("_same_uuid", "resume", say("What?", "two"), IDLE, END),
            process("_again", "again", Wait(2), END),
            process("_unknown", "unknown", Wait(2), END),
        ),
    ),
)  # fmt: skip

DIALOGUES = {scenario.name: scenario for scenario in _TABLE}
