"""In the same dialogue the demo says the same in the same order as the real claude, whose recordings it is held to."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable

import pytest

from tests.backends.recorded import RECORDINGS
from tests.demo.conftest import Demo, Talk
from tests.demo.told import told
from tests.e2e.dialogue import ask, say
from tests.versions import VERSIONS

Case = Callable[[Talk], "signal.Signals | None"]
CASES: dict[str, Case] = {}
SPEAKS = "One\n@wait-file go\ntwo"
STALLS = "The answer is\n@stall"
BASH = "@bash while [ ! -e go ]; do sleep 0.01; done\nAfter the tool."
MAKES = '@ask Bash {"command": "mkdir made"}\nDone.'
TASK = "@bash timeout=0.01 while [ ! -e over ]; do sleep 0.01; done\nStarted it."
BACKGROUND = "@background 0.3 It has finished.\nStarted it."


def case(function: Case) -> Case:
    CASES[f"live_{function.__name__}"] = function
    return function


def turn(talk: Talk, name: str, script: str = "Next.") -> None:
    talk.say(script, name)
    talk.idle()


@case
def text(talk: Talk) -> None:
    turn(talk, "one")
    turn(talk, "two")


@case
def same_uuid(talk: Talk) -> None:
    turn(talk, "one")
    turn(talk, "one")
    turn(talk, "two")


@case
def no_uuid(talk: Talk) -> None:
    talk.say("First.")
    talk.idle()


@case
def merged(talk: Talk) -> None:
    talk.say(SPEAKS, "one")
    talk.delta()
    talk.say("Second.", "two")
    talk.say("Third.", "three")
    talk.waits("three")
    talk.go()
    talk.idle()


@case
def injected(talk: Talk) -> None:
    talk.say(BASH, "one")
    talk.calls()
    talk.say("Second.", "two")
    talk.waits("two")
    talk.go()
    talk.idle()


@case
def injected_after_text(talk: Talk) -> None:
    talk.say("I will\n@wait-file go\nlook.\n@bash echo hi\nAfter.", "one")
    talk.delta()
    talk.say("Second.", "two")
    talk.waits("two")
    talk.go()
    talk.idle()


@case
def interrupt_too_soon(talk: Talk) -> None:
    turn(talk, "one")
    both = (say("Second.", "two"), ask("interrupt"))
    talk.line("\n".join(cue.line for cue in both))
    talk.idle()


@case
def interrupt(talk: Talk) -> None:
    talk.say(STALLS, "one")
    talk.delta()
    talk.ask("interrupt")
    talk.idle()
    turn(talk, "two")


@case
def interrupt_no_text(talk: Talk) -> None:
    talk.say("@stall", "one")
    talk.until("system", status="requesting")
    talk.ask("interrupt")
    talk.idle()
    turn(talk, "two")


@case
def interrupt_tool(talk: Talk) -> None:
    talk.say("@bash sleep 60", "one")
    talk.calls()
    talk.ask("interrupt")
    talk.idle()
    turn(talk, "two")


@case
def interrupt_idle(talk: Talk) -> None:
    talk.ask("interrupt")
    talk.answered()
    turn(talk, "one")
    talk.ask("interrupt", "again")
    talk.answered()
    turn(talk, "two")


@case
def interrupt_queued(talk: Talk) -> None:
    talk.say(STALLS, "one")
    talk.delta()
    talk.say("Second.", "two")
    talk.waits("two")
    talk.ask("interrupt")
    talk.idle()


@case
def interrupt_all(talk: Talk) -> None:
    talk.say(STALLS, "one")
    talk.delta()
    talk.say("Second.", "two")
    talk.waits("two")
    talk.ask("interrupt", cancel_queued=True)
    talk.idle()
    turn(talk, "three")


@case
def interrupt_injected(talk: Talk) -> None:
    talk.say(f"{BASH}\n@stall", "one")
    talk.calls()
    talk.say("Second.", "two")
    talk.waits("two")
    talk.go()
    talk.delta()
    talk.ask("interrupt")
    talk.idle()


@case
def ask_allow(talk: Talk) -> None:
    talk.say(MAKES, "one")
    talk.asked()
    talk.answer("allow")
    talk.idle()
    turn(talk, "two")


@case
def ask_remember(talk: Talk) -> None:
    talk.say('@ask Bash {"command": "mkdir a"}\n@ask Bash {"command": "mkdir b"}\nDone.', "one")
    talk.asked()
    rule = {"toolName": "Bash", "ruleContent": "mkdir:*"}
    talk.answer(
        "allow",
        updatedPermissions=[{"type": "addRules", "rules": [rule], "behavior": "allow", "destination": "session"}],
    )
    talk.idle()


@case
def ask_deny(talk: Talk) -> None:
    talk.say(MAKES, "one")
    talk.asked()
    talk.answer("deny", message="not today")
    talk.idle()


@case
def ask_deny_no_message(talk: Talk) -> None:
    talk.say(MAKES, "one")
    talk.asked()
    talk.answer("deny")
    talk.idle()


@case
def ask_deny_interrupt(talk: Talk) -> None:
    talk.say(MAKES, "one")
    talk.asked()
    talk.answer("deny", message="stop", interrupt=True)
    talk.idle()
    turn(talk, "two")


@case
def ask_write(talk: Talk) -> None:
    talk.say('@ask Write {"file_path": "new.txt", "content": "x"}\nDone.', "one")
    talk.asked()
    talk.answer("allow")
    talk.idle()


@case
def ask_end(talk: Talk) -> None:
    talk.say(MAKES, "one")
    talk.asked()


@case
def ask_interrupt(talk: Talk) -> None:
    talk.say(MAKES, "one")
    talk.asked()
    talk.ask("interrupt")
    talk.idle()
    turn(talk, "two")


@case
def ask_queued(talk: Talk) -> None:
    talk.say(MAKES, "one")
    talk.asked()
    talk.say("Second.", "two")
    talk.waits("two")
    talk.answer("allow")
    talk.idle()


@case
def ask_sigterm(talk: Talk) -> signal.Signals:
    talk.say(MAKES, "one")
    talk.asked()
    return signal.SIGTERM


@case
def background(talk: Talk) -> None:
    talk.say(BACKGROUND, "one")
    talk.idle()
    talk.idle()
    turn(talk, "two")


@case
def background_in_turn(talk: Talk) -> None:
    talk.say(TASK, "one")
    talk.idle()
    talk.say("Sec\n@wait-file go\nond.", "two")
    talk.delta()
    talk.go("over")
    talk.until("system", subtype="task_notification")
    talk.go()
    talk.idle()


@case
def background_end(talk: Talk) -> None:
    talk.say(BACKGROUND, "one")
    talk.idle()


@case
def controls(talk: Talk) -> None:
    def control(subtype: str, request_id: str, **fields: object) -> None:
        talk.ask(subtype, request_id, **fields)
        talk.answered()

    control("set_model", "m0", model="claude-sonnet-4-5")
    turn(talk, "one")
    control("set_model", "m1", model="claude-opus-5-5")
    control("set_model", "m2", model=5)
    control("set_permission_mode", "p1", mode="plan")
    control("set_permission_mode", "p2", mode="bypassPermissions")
    control("set_permission_mode", "p3", mode="nonsense")
    control("set_permission_mode", "p4", mode="default")
    control("set_max_thinking_tokens", "t1", max_thinking_tokens=1000)
    control("nonsense", "nonsense")
    turn(talk, "two")


@case
def controls_busy(talk: Talk) -> None:
    talk.say(SPEAKS, "one")
    talk.delta()
    talk.ask("set_model", model="claude-sonnet-4-5")
    talk.answered()
    talk.ask("set_permission_mode", mode="acceptEdits")
    talk.answered()
    talk.go()
    talk.idle()
    turn(talk, "two")


@case
def context_usage(talk: Talk) -> None:
    turn(talk, "one")
    talk.ask("get_context_usage")
    talk.answered()


@case
def compact(talk: Talk) -> None:
    turn(talk, "one")
    turn(talk, "two", "/compact")
    turn(talk, "three")


@case
def compact_queued(talk: Talk) -> None:
    talk.say(SPEAKS, "one")
    talk.delta()
    talk.say("/compact", "two")
    talk.say("Third.", "three")
    talk.waits("three")
    talk.go()
    talk.idle()


@case
def compact_nothing(talk: Talk) -> None:
    turn(talk, "one", "/compact")


@case
def end_busy(talk: Talk) -> None:
    talk.say(SPEAKS, "one")
    talk.delta()
    talk.say("Second.", "two")
    talk.waits("two")
    talk.go()


@case
def sigterm_idle(talk: Talk) -> signal.Signals:
    turn(talk, "one")
    return signal.SIGTERM


@case
def sigterm(talk: Talk) -> signal.Signals:
    talk.say(STALLS, "one")
    talk.delta()
    talk.say("Second.", "two")
    talk.waits("two")
    return signal.SIGTERM


@case
def sigint(talk: Talk) -> signal.Signals:
    sigterm(talk)
    return signal.SIGINT


@case
def http_403_last(talk: Talk) -> None:
    turn(talk, "one", "@error authentication")


@case
def http_403(talk: Talk) -> None:
    turn(talk, "one", "@error authentication")
    turn(talk, "two")


@pytest.mark.parametrize("name", CASES)
def test_the_demo_says_what_claude_says_in_the_same_order(demo: Demo, name: str) -> None:
    recording = RECORDINGS / "claude" / VERSIONS["claude"] / f"{name}.jsonl"
    meta = json.loads(recording.with_suffix(".meta.json").read_text())
    talk = demo.live(*(("--permission-mode", "bypassPermissions") if "bypassPermissions" in meta["argv"] else ()))
    run = talk.end(CASES[name](talk))
    assert told(run.frames) == told(json.loads(line) for line in recording.read_text().splitlines())
    assert run.code == meta["exit_code"]
