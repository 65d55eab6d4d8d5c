"""Live sessions of each real CLI that has them: one process for many turns. What only one of them has is in its own folder."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from clisup.backends.registry import get_adapter
from tests.e2e.lab import Lab, poll
from tests.e2e.labs import CLIS, Cli, each
from tests.e2e.scenarios import Body, Reply

pytestmark = pytest.mark.e2e
live = each(kind for kind in CLIS if get_adapter(kind).capabilities.live)
LOOP = "while :; do sleep 0.1; done"
GATE = "while ! [ -e go ]; do sleep 0.1; done"


def kept(here: Lab, words: str) -> bool:
    """Tell whether the CLI has written these words into a transcript: what claude has not written after 100 ms can be lost."""
    return any(words in path.read_text() for path in here.home.rglob("*.jsonl"))


@live
def test_many_turns_have_one_process_and_the_next_process_goes_on_with_the_session(cli: Cli) -> None:
    with cli.playing(cli.voice.remember) as here:
        session = here.open(mode="live")
        turns = [here.turn(words, session=session) for words in ("My name is Ada.", "What?", "And now?")]
        (first,) = here.pids(session)
        poll(lambda: kept(here, "And now?"), "the CLI's transcript")
        os.kill(first, signal.SIGKILL)
        here.wait_for(session, "process_exited")
        turns += [here.turn(words, session=session) for words in ("What did I say?", "Once more.")]
        assert all("My name is Ada." in turn["text"] for turn in turns)
        for n, turn in enumerate(turns):
            usage = {"output_tokens": 40 + n} if cli.kind == "gemini" else cli.voice.usage(n)
            assert usage.items() <= turn["usage"].items(), turn
        if cli.kind in ("claude", "codex"):
            costs = [turn["cost_usd"] for turn in turns]
            assert 0 < max(costs) < 2 * min(costs) and all(turn["cost_source"] != "unknown" for turn in turns)
        assert len({event["native_session_id"] for event in here.events(session, "session_init")}) == 1
        with here.client() as client:
            client.call("session/close", session_id=session)
        exited = here.events(session, "process_exited")[-1]
        assert (exited["exit_code"], exited["ended_by"]) == (0, "client")
        assert len(here.pids(session)) == 2 and here.is_whole(session)


@pytest.mark.fault(10)
@live
def test_an_interrupt_ends_the_turn_and_its_tool_and_keeps_the_process(cli: Cli) -> None:
    say, tool = cli.voice.say, cli.asked_for(f"echo $$ > pid; {LOOP}")
    with cli.playing(cli.voice.partly, say("Text."), tool, say("Question."), tool, say("Tool.")) as here:
        session = cli.live(here)
        for turn, reached in (("t1", "content_delta"), ("t3", "approval_requested"), ("t5", "approval_requested")):
            here.prompt(session)
            asked = here.wait_for(session, reached, turn_id=turn)
            if turn == "t5":
                here.answer(session, asked, "allow")
                pid = poll(lambda: (here.cwd / "pid").exists() and (here.cwd / "pid").read_text(), "the tool's start")
            here.interrupt(session)
            told = here.turn("Go on.", session=session)
            assert (told["outcome"], told["text"]) == (
                "completed",
                {"t1": "Text.", "t3": "Question."}.get(turn, "Tool."),
            )
        poll(lambda: not Path(f"/proc/{pid.strip()}").exists(), "the tool's end")
        assert len(here.pids(session)) == 1 and here.is_whole(session)


@pytest.mark.fault(1)
@live
def test_a_turn_and_its_approval_go_on_in_their_process_while_the_daemon_is_killed(cli: Cli) -> None:
    runs, more = cli.asked_for(f"touch begun; {GATE}; echo x >> ran"), cli.asked_for("touch more")
    with cli.playing(runs, cli.voice.say("One."), more, cli.voice.say("Two.")) as here:
        session = cli.live(here)
        here.prompt(session, "First.")
        asked = here.wait_for(session, "approval_requested")
        with here.client() as client:
            listed = client.call("approval/list", session_id=session)["approvals"]
        assert [entry["approval_id"] for entry in listed] == [asked["approval_id"]]
        assert asked["tool_name"] == cli.tool and "ran" in str(asked["input"])
        here.restart()  # with a question
        here.answer(session, asked, "allow")
        poll((here.cwd / "begun").exists, "the tool's start")
        here.restart()  # in a tool
        (here.cwd / "go").touch()
        assert here.wait_for(session, "turn_completed", turn_id="t1")["text"] == "One."
        here.restart()  # at rest
        here.prompt(session, "Second.")
        here.restart()  # with a prompt that was just sent
        asked = here.wait_for(session, "approval_requested", turn_id="t2")
        here.restart()  # with a question in a later turn
        here.answer(session, asked, "deny", message="Not that.")
        second = here.wait_for(session, "turn_completed", turn_id="t2")
        ends = cli.kind == "acp"  # qwen ends its turn where it may not run a tool
        assert (second["outcome"], len(second["denied"])) == ("completed", 1)
        assert (second["text"], second["usage"]["output_tokens"]) == (("", 42) if ends else ("Two.", 42 + 43))
        assert (here.cwd / "ran").read_text() == "x\n" and not (here.cwd / "more").exists()
        assert [(event["decision"], event["by"]) for event in here.events(session, "approval_resolved")] == [
            ("allow", "client"),
            ("deny", "client"),
        ]
        assert len(here.events(session, "approval_requested")) == 2
        sent = [json.dumps(request.body) for request in here.api.main_requests]
        assert [body.count("Second.") for body in sent] == [0, 0, 1] + [1] * (not ends)
        assert ("Not that." in sent[-1]) is (cli.kind in ("claude", "qwen"))
        assert len(here.pids(session)) == 1 and here.is_whole(session)


@pytest.mark.fault(64)
@each(["claude", "codex", "qwen", "gemini"])
def test_a_failed_turn_leaves_the_session_and_unless_it_retries_a_401_the_process_for_the_next(cli: Cli) -> None:
    def respond(body: Body, n: int) -> Reply:
        words, voice = str(body), cli.voice
        refused = voice.forbidden if "Second." in words else voice.unauthorised
        return (voice.remember if "Third." in words else refused)(body, n)

    with cli.playing(respond, **cli.patient) as here:
        session = here.open(mode="live")
        first, second, third = (here.turn(words, session=session) for words in ("First.", "Second.", "Third."))
        assert (first["outcome"], first["error"]["kind"]) == ("failed", "authentication")
        assert (second["outcome"], second["error"]["kind"]) == ("failed", "permission")
        assert third["outcome"] == "completed" and third["text"]
        assert len(here.pids(session)) == {"claude": 2, "codex": 3}.get(cli.kind, 1)


@pytest.mark.fault(69)
@each(["claude", "qwen", "gemini"])
def test_a_prompt_that_looks_like_a_command_or_a_file_is_text_in_every_turn(cli: Cli) -> None:
    with cli.playing(cli.voice.remember) as here:
        (here.cwd / "secret.txt").write_text("the file's own words")
        session = here.open(mode="live")
        for words in ("/about and @secret.txt", "/quit", "/compact", "$help me"):
            assert here.turn(words, session=session)["outcome"] == "completed"
            assert words.split()[0] in str(here.api.main_requests[-1].body)
        assert "the file's own words" not in str([request.body for request in here.api.requests])
        assert len(here.api.main_requests) == 4 and len(here.pids(session)) == 1
        assert all(
            event["prompt_altered"]
            for event in here.events(session, "turn_started")[: 4 if cli.kind == "gemini" else 3]
        )


@live
def test_a_turn_of_a_live_process_costs_little_beside_the_model(cli: Cli) -> None:
    with cli.playing("text") as here:
        here.prove_that_live_is_cheap()
