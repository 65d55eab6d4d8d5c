"""`clisup top` without a terminal (Textual's pilot) over a real daemon, the demo backend behind it."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual.events import MouseScrollDown
from textual.pilot import Pilot

from clisup.cli.top.app import Top
from clisup.cli.top.panes import FOLLOWED_LINES
from tests.pictures.scene import ASKS, Scene

BOUND_S = 60.0
Play = Callable[[Top, Pilot[Any]], Awaitable[None]]


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    yield made
    made.close()


def play(scene: Scene, what: Play, size: tuple[int, int] = (120, 35), **options: Any) -> None:
    """Run the view in this process, on asyncio, as the command does."""

    async def run() -> None:
        top = Top(scene.daemon.socket, **options)
        async with top.run_test(size=size, notifications=True) as pilot:
            await what(top, pilot)

    asyncio.run(run())


async def until(pilot: Pilot[Any], condition: Callable[[], Any], why: str = "") -> Any:
    end = time.monotonic() + BOUND_S
    while not (found := condition()):
        assert time.monotonic() < end, f"waited in vain: {why}\n{screen(pilot.app)}"
        await pilot.pause(0.05)
    return found


def screen(app: Any) -> str:
    """What is seen, as text."""
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


async def see(pilot: Pilot[Any], *texts: str) -> None:
    for text in texts:
        await until(pilot, lambda text=text: text in screen(pilot.app), text)


def followed(top: Top) -> str:
    """The lines that are kept of the followed session."""
    return "\n".join(strip.text for strip in top.pane.log_lines.lines)


async def ask_in(scene: Scene, pilot: Pilot[Any]) -> str:
    session_id = scene.open("asking", f"{ASKS}\nAfter it.", mode="live", permission_mode="default")
    await see(pilot, "git push --force-with-lease origin main", f"{session_id[:8]} wants you")
    await until(pilot, lambda: time.monotonic() - pilot.app._pinned_at > 1, "it may be answered")
    return session_id


def ended(scene: Scene, session_id: str) -> list[str]:
    page = scene.daemon.call("session/events", session_id=session_id, after_seq=0, limit=1000)
    return [event["outcome"] for event in page["events"] if event["type"] == "turn_completed"]


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)])
def test_a_turn_is_seen_running_and_ending_on_a_screen_of_any_size(scene: Scene, size: tuple[int, int]) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        await see(pilot, "No sessions", "● ready", "turns 0/")
        session_id = scene.open("seen", f"@stream 5 14 0.01\n@wait-file {scene.go}")
        await see(pilot, session_id[:8], "running: model", "turns 1/", "events/s", "next timer model")
        lines = screen(top).split("\n")
        assert len(lines) == size[1] and all(len(line) == size[0] for line in lines)
        scene.go.touch()
        await see(pilot, "turn_completed", "completed", "done 1")

    play(scene, look, size)


def test_a_follows_an_approval_is_allowed_by_one_key(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        session_id = await ask_in(scene, pilot)
        assert scene.status()["sessions"][0]["phase"] == "approval"
        await pilot.press("a")
        await until(pilot, lambda: ended(scene, session_id) == ["completed"], "it was allowed")
        await until(pilot, lambda: "wants you" not in screen(top), "the question goes")
        resolved = [e for e in events(scene, session_id) if e["type"] == "approval_resolved"]
        assert [(e["decision"], e["actor"]["client"]) for e in resolved] == [("allow", "clisup-top")]

    play(scene, look)


def test_a_denial_asks_for_a_message(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        session_id = await ask_in(scene, pilot)
        await pilot.press("d")
        await see(pilot, "Message to the model?")
        await pilot.press(*"not now", "enter")
        await until(pilot, lambda: ended(scene, session_id), "it was denied")
        (resolved,) = [e for e in events(scene, session_id) if e["type"] == "approval_resolved"]
        assert (resolved["decision"], resolved["message"]) == ("deny", "not now")

    play(scene, look)


def events(scene: Scene, session_id: str) -> list[dict[str, Any]]:
    return list(scene.daemon.call("session/events", session_id=session_id, after_seq=0, limit=1000)["events"])


def test_a_question_that_has_just_come_is_not_answered_by_a_key_that_was_under_way(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        await ask_in(scene, pilot)
        top._pinned_at = time.monotonic() + BOUND_S
        await pilot.press("a")
        await see(pilot, "press again")
        assert len(scene.daemon.call("approval/list")["approvals"]) == 1

    play(scene, look)


def test_what_is_not_all_to_be_seen_is_shown_whole_before_it_is_allowed(scene: Scene) -> None:
    lines = "\\n".join(f"echo {n}" for n in range(30)) + "\\nrm -rf /nonexistent"

    async def look(top: Top, pilot: Pilot[Any]) -> None:
        prompt = f'@ask Bash {{"command": "{lines}"}}'
        session_id = scene.open("asking", prompt, mode="live", permission_mode="default")
        await see(pilot, "more lines: a shows them all")
        await until(pilot, lambda: time.monotonic() - top._pinned_at > 1, "it may be answered")
        await pilot.press("a")
        await until(pilot, lambda: "Whole" in type(top.screen).__name__, "the whole")
        await pilot.press("end")
        await see(pilot, "rm -rf /nonexistent")
        assert ended(scene, session_id) == []
        await pilot.press("d")
        await see(pilot, "Message to the model?")
        await pilot.press("enter")
        await until(pilot, lambda: ended(scene, session_id), "it was denied")

    play(scene, look)


QUESTIONS = [
    {"question": "Which database?", "header": "Store", "options": [{"label": "sqlite"}, {"label": "postgres"}]},
    {"question": "Which checks?", "multiSelect": True, "options": [{"label": "lint"}, {"label": "types"}, {"label": "tests"}]},
]  # fmt: skip


def test_a_question_of_the_cli_is_answered_by_numbers_and_words_in_a_form(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        prompt = f"@ask AskUserQuestion {json.dumps({'questions': QUESTIONS})}"
        session_id = scene.open("choosing", prompt, mode="live", permission_mode="default")
        await see(pilot, "Which database?", "1) sqlite", "a answer   d deny")
        await until(pilot, lambda: time.monotonic() - top._pinned_at > 1, "it may be answered")
        await pilot.press("a")
        await see(pilot, "question 1 of 2 (Store):", "answer (1-2, or your own words")
        await pilot.press("9", "enter")
        await see(pilot, "there is no choice 9")
        assert "Which database?" in screen(top), "the question stays"
        await pilot.press("2", "enter")
        await see(pilot, "Which checks?", "3) tests")
        await pilot.press(*"1,3", "enter")
        await until(pilot, lambda: ended(scene, session_id) == ["completed"], "it was answered")
        (resolved,) = [e for e in events(scene, session_id) if e["type"] == "approval_resolved"]
        assert (resolved["decision"], resolved["actor"]["client"]) == ("allow", "clisup-top")

    play(scene, look)


ELICITATION = {
    "message": "How?", "mode": "form",
    "requested_schema": {
        "properties": {
            "coats": {"type": "integer", "minimum": 1, "maximum": 3, "default": 2},
            "key": {"type": "string", "format": "password"},
        },
        "required": ["key"],
    },
}  # fmt: skip


def test_an_elicitation_is_filled_in_a_form_and_a_secret_is_not_shown(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        prompt = f"@ask mcp__good__elicitation {json.dumps(ELICITATION)}"
        session_id = scene.open("painting", prompt, mode="live", permission_mode="default")
        await see(pilot, "good asks:", "| How?", "a answer   d deny")
        await until(pilot, lambda: time.monotonic() - top._pinned_at > 1, "it may be answered")
        await pilot.press("a")
        await see(pilot, "question 1 of 2 (coats):", "an empty line takes the default, 2")
        await pilot.press("9", "enter")
        await see(pilot, "type a whole number, 1 to 3")
        await pilot.press("enter")
        await see(pilot, "question 2 of 2 (key):")
        await pilot.press(*"hunter2")
        assert "hunter2" not in screen(top)
        await pilot.press("enter")
        await until(pilot, lambda: ended(scene, session_id) == ["completed"], "it was answered")
        (result,) = [e for e in events(scene, session_id) if e["type"] == "tool_result"]
        assert json.loads(result["content"]) == {"action": "accept", "content": {"coats": 2, "key": "hunter2"}}

    play(scene, look)


def test_a_plan_is_read_whole_and_sent_back_with_words(scene: Scene) -> None:
    plan = "# Rewrite\n" + "\n".join(f"{n}. step" for n in range(60)) + "\nThe end."

    async def look(top: Top, pilot: Pilot[Any]) -> None:
        prompt = f"@ask ExitPlanMode {json.dumps({'plan': plan})}"
        session_id = scene.open("planning", prompt, mode="live", permission_mode="default")
        await see(pilot, "plan:", "# Rewrite")
        await until(pilot, lambda: time.monotonic() - top._pinned_at > 1, "it may be answered")
        await pilot.press("a")
        await see(pilot, "approve the plan?")
        await pilot.press(*["pagedown"] * 6)
        await see(pilot, "The end.")
        await pilot.press("d", "enter")
        await see(pilot, "message to the model")
        await pilot.press(*"smaller", "enter")
        await until(pilot, lambda: ended(scene, session_id), "it was sent back")
        (resolved,) = [e for e in events(scene, session_id) if e["type"] == "approval_resolved"]
        assert (resolved["decision"], resolved["message"]) == ("deny", "smaller")

    play(scene, look)


def test_a_turn_is_interrupted_by_key_after_a_question(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        session_id = scene.open("hanging", "I begin.\n@stall")
        await see(pilot, "t1")
        await pilot.press("i")
        await see(pilot, f"End t1 of {session_id[:8]} (demo)?")
        await pilot.press("n")
        assert ended(scene, session_id) == []
        await pilot.press("i")
        await see(pilot, "End t1")
        await pilot.press("y")
        await until(pilot, lambda: ended(scene, session_id) == ["interrupted"], "it ends")
        await see(pilot, "turns 0/", "interrupted")  # the view has heard of it, too
        await pilot.press("i")
        await see(pilot, "no turn runs in this session")

    play(scene, look)


def test_following_shows_events_in_words_and_the_text_that_is_being_written(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        scene.open("followed", f"@bash echo made\nSo far so good.\n@stream 3 14 0.01\n@wait-file {scene.go}\nAnd more.")
        await see(pilot, "t1")
        await pilot.press("f")
        await see(pilot, "turn_started", "tool_use", "Bash echo made", "chunk 000002")
        scene.go.touch()
        await see(pilot, "And more.", "turn_completed")
        await pilot.press("escape")
        await until(pilot, lambda: not top.pane.display, "it closes")

    play(scene, look)


def test_the_followed_lines_are_a_ring_and_none_is_shown_twice(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        session_id = scene.open("flood", "\n".join(f"@tool Read {{}} => line {n}" for n in range(600)))
        await until(pilot, lambda: ended_by_get(scene, session_id), "it is done")
        await see(pilot, "completed")
        await pilot.press("f")
        await until(pilot, lambda: "turn_completed" in followed(top), "the end of it")
        text = followed(top)
        assert len(top.pane.log_lines.lines) <= FOLLOWED_LINES
        assert re.findall(r"line (\d+)$", text, re.MULTILINE)[-3:] == ["597", "598", "599"], text[-2000:]

    play(scene, look)


def ended_by_get(scene: Scene, session_id: str) -> bool:
    return bool(scene.daemon.call("session/get", session_id=session_id)["state"] == "idle")


def test_it_says_reconnecting_while_the_daemon_is_away_and_then_goes_on_without_doubling_a_line(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        scene.open("kept", f"Before.\n@bash echo one\n@wait-file {scene.go}\nAfterwards.")
        await see(pilot, "t1")
        await pilot.press("enter")
        await see(pilot, "Bash echo one")
        scene.daemon.kill()
        await see(pilot, "reconnecting")
        await asyncio.to_thread(scene.daemon.start)
        await until(pilot, lambda: top.board.connected, "it is back")
        await see(pilot, "● ready")
        scene.go.touch()
        await until(pilot, lambda: "turn_completed" in followed(top), "the end of it")
        await see(pilot, "done 1")
        text = followed(top)
        assert text.count("turn_started") == text.count("turn_completed") == 1
        assert len(re.findall(r"message +Afterwards\.$", text, re.MULTILINE)) == 1

    play(scene, look)


def test_the_keys_that_look_choose_sort_filter_and_help(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        ids = [scene.open(f"job-{n}", "hello") for n in range(3)]
        await see(pilot, *(id_[:8] for id_ in ids), "done 3")
        first = top.rows.selected
        await pilot.press("j")
        second = top.rows.selected
        await pilot.press("down", "k")
        assert second == top.rows.selected != first
        await pilot.press("s")
        await see(pilot, "sorted by session")
        assert top.rows.selected == second, "the choice stays with its session"
        await pilot.press("slash", *"job=job-1", "enter")
        await see(pilot, "(1 of 3)")
        await until(pilot, lambda: top.rows.selected == ids[1], "the one that is left")
        await pilot.press("escape")
        await until(pilot, lambda: "(1 of 3)" not in screen(top), "no filter")
        await pilot.press("question_mark")
        await see(pilot, "allow the shown tool call")
        await pilot.press("escape", "q")

    play(scene, look)


def test_it_takes_a_connection_for_its_calls_and_one_for_each_thing_it_follows(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        scene.open("one", f"@wait-file {scene.go}")
        await see(pilot, "t1")
        await pilot.press("f")
        await see(pilot, "turn_started")
        names = [c["name"] for c in scene.status()["clients"]]
        assert names.count("clisup-top") == 3
        await pilot.press("f")
        await until(
            pilot, lambda: [c["name"] for c in scene.status()["clients"]].count("clisup-top") == 2, "two are left"
        )

    play(scene, look)


def test_a_thousand_rows_are_drawn_as_far_as_they_are_seen(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        await see(pilot, "No sessions")
        ids = [scene.daemon.call("session/new", backend="demo", cwd="/")["session_id"] for _ in range(60)]
        await until(pilot, lambda: len(top.rows.table.lines) == 60, "all are there")
        await pilot.press("G")
        await until(pilot, lambda: top.rows.table.lines[-1].session_id[:8] in screen(top), "the last is seen")
        assert top.rows.selected == top.rows.table.lines[-1].session_id and top.rows.selected in ids
        await pilot.press("g")
        await until(pilot, lambda: top.rows.table.lines[0].session_id[:8] in screen(top), "the first is seen")

    play(scene, look, (80, 24))


def test_with_forty_sessions_on_24_lines_no_key_acts_on_a_session_that_is_not_seen(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        for _ in range(39):
            scene.daemon.call("session/new", backend="demo", cwd="/")
        last = scene.open("hanging", "@stall")
        await until(pilot, lambda: len(top.rows.table.lines) == 40, "all are there")
        await until(pilot, lambda: may_be_interrupted(top, last), "its turn is known, and the rows fit the screen")
        for key in ("end", "up", "pageup", "home", "pagedown", "pagedown", "down", "end"):
            await pilot.press(key)
            await until(pilot, lambda: chosen_is_seen(top), key)
        assert top.rows.selected == last
        await pilot.press("i")
        title = (top.board.session(last) or {}).get("title") or "demo"
        await see(pilot, f"End t1 of {last[:8]} (demo)?", title)
        await pilot.press("y")
        await until(pilot, lambda: ended(scene, last) == ["interrupted"], "it ends")

    play(scene, look, (80, 24), sort="age")


def chosen_is_seen(top: Top) -> bool:
    """Is the one marked row of the screen that of the chosen session? The scroll bar has reversed cells, too."""
    pieces = (piece for strip in top.screen._compositor.render_strips() for piece in strip)
    marked = [piece.text for piece in pieces if piece.style and piece.style.reverse and len(piece.text) > 1]
    return [text[:8] for text in marked] == [str(top.rows.selected)[:8]]


def may_be_interrupted(top: Any, session_id: str) -> bool:
    """Tell whether the view knows the turn of a session, and has drawn itself: before that no key acts."""
    knows = bool((top.board.session(session_id) or {}).get("turn_id"))
    return knows and top.rows.region.bottom <= top.footer.region.y


async def crowd(scene: Scene, pilot: Pilot[Any]) -> str:
    """More sessions than the screen has lines for; the last of them, whose id this gives, runs a turn."""
    for _ in range(20):
        scene.daemon.call("session/new", backend="demo", cwd="/")
    last = scene.open("hanging", "@stall")
    await until(pilot, lambda: len(pilot.app.rows.table.lines) == 21, "all are there")
    await until(pilot, lambda: may_be_interrupted(pilot.app, last), "its turn is known, and the rows fit the screen")
    return last


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_the_chosen_row_is_seen_after_each_key_and_its_session_is_the_one_that_is_interrupted(
    scene: Scene, columns: int
) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        last = await crowd(scene, pilot)
        keys = ["down", "down", "pagedown", "up", "pageup", "end", "home", "j", "G", "g", *["down"] * 20]
        for key in keys:
            before = top.rows.selected
            await pilot.press(key)
            assert top.rows.selected != before, key
            await until(pilot, lambda: chosen_is_seen(top), key)
        assert top.rows.selected == last, "twenty rows further down is the last of them"
        await pilot.press("i")
        await see(pilot, f"End t1 of {last[:8]} (demo)?")
        await pilot.press("y")
        await until(pilot, lambda: ended(scene, last) == ["interrupted"], "it ends")

    play(scene, look, (columns, 14), sort="age")


def test_the_chosen_row_stays_seen_when_the_wheel_turns_the_rows_move_or_the_screen_gets_smaller(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        last = await crowd(scene, pilot)
        seen = partial(chosen_is_seen, top)
        first = top.rows.selected
        for _ in range(12):
            await pilot._post_mouse_events([MouseScrollDown], top.rows, button=0)
            await until(pilot, seen, "it is seen after the wheel")
        assert top.rows.selected not in (first, last), "the wheel chooses"
        await pilot.press("end")
        await pilot.resize_terminal(100, 12)
        await until(pilot, seen, "it is seen on a smaller screen")
        await pilot.press("f")
        await until(pilot, lambda: top.pane.display and seen(), "it is seen above its events")
        await pilot.press("f", "s")
        while top._sort != "attention":
            await pilot.press("s")
        assert top.rows.selected == last == top.rows.table.lines[0].session_id
        await until(pilot, seen, "it is seen where it is the first")

    play(scene, look, (100, 20), sort="age")


def test_no_key_acts_on_a_question_or_a_row_that_the_screen_has_no_line_for(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        session_id = await ask_in(scene, pilot)
        await pilot.resize_terminal(80, 5)
        await until(pilot, lambda: top.rows.region.bottom > 5, "there is no line for a row, nor for the question")
        for key in ("a", "A", "d", "i"):
            top.clear_notifications()
            await until(pilot, lambda: not top._notifications, "nothing is said")
            await pilot.press(key)
            await until(pilot, lambda: [n for n in top._notifications if "too few lines" in n.message], key)
        assert type(top.screen).__name__ == "Screen", "no dialog came"
        await pilot.resize_terminal(80, 24)
        await see(pilot, "git push --force-with-lease origin main")
        await pilot.press("d")
        await see(pilot, f"Bash of {session_id[:8]} is denied.")
        await pilot.press("enter")
        await until(pilot, lambda: ended(scene, session_id), "it was denied")

    play(scene, look)


def test_another_daemon_in_its_place_is_followed_from_now_on(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        session_id = scene.open("gone", "hello")
        await see(pilot, session_id[:8], "done 1")
        scene.daemon.stop()
        shutil.rmtree(scene.daemon.state)
        await see(pilot, "reconnecting")
        await asyncio.to_thread(scene.daemon.start)
        other = scene.open("new", f"@wait-file {scene.go}")
        await see(pilot, "● ready", other[:8])
        await until(pilot, lambda: session_id[:8] not in screen(top), "the old one is gone")

    play(scene, look)


def listen(other: socket.socket, path: str) -> None:
    Path(path).unlink(missing_ok=True)
    other.bind(path)
    other.listen()


def test_a_daemon_that_lets_nobody_in_any_longer_ends_the_view_with_its_reason(scene: Scene) -> None:
    async def look(top: Top, pilot: Pilot[Any]) -> None:
        await see(pilot, "No sessions")
        scene.daemon.stop()
        with socket.socket(socket.AF_UNIX) as other:
            listen(other, scene.daemon.socket)
            connection, _ = await asyncio.to_thread(other.accept)
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")
                await until(pilot, lambda: top.return_code, "it ends")
        assert top.return_code == 1

    play(scene, look)
