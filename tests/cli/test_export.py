"""`clisup export`: events in, a document out, whatever the events hold."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from clisup.cli.export.as_json import write_json
from clisup.cli.export.diffs import MAX_COMPARED, call_diff
from clisup.cli.export.markdown import safe_markdown, write_markdown
from clisup.cli.export.page import write_html
from clisup.cli.export.parts import Part, SessionHead
from clisup.cli.export.session_parts import MAX_HELD, SessionParts
from tests.backends.recorded import PATHS, Recording, name_of

HOSTILE = '<script>alert(1)</script> "><img src=x onerror=alert(2)> \x1b[31mred\x1b]0;t\x07 \u202egnp.exe\u202c </details></pre>'
SESSION = {
    "session_id": "3f2a9c1e-0000-4000-8000-000000000000", "backend": "claude", "model": "opus", "cwd": "/srv/app",
    "labels": {"x": "1"}, "created_at": "2026-11-22T10:15:02.123Z", "turns": 1, "cost_usd": 0.5, "tokens": {"input_tokens": 9},
}  # fmt: skip
WRITERS = {"md": write_markdown, "html": write_html, "json": write_json}


def no_blob(_name: str, _limit: int) -> tuple[bytes, int]:
    return b"", 0


class Story:
    """Events of a session."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def add(self, type_: str, turn: str | None = "t1", **fields: Any) -> Story:
        seq = len(self.events) + 1
        ts = f"2026-11-22T10:15:{seq % 60:02d}.000Z"
        self.events.append({"session_id": "s", "seq": seq, "ts": ts, "turn_id": turn, "type": type_, **fields})
        return self

    def turn(self, prompt: str = "Do it.", turn: str = "t1") -> Story:
        return self.add("prompt_accepted", turn, delivery="delivered", text=prompt).add("turn_started", turn, run=1)

    def says(self, text: str, **fields: Any) -> Story:
        return self.add("message", blocks=[{"kind": "text", "text": text}], **fields)

    def ends(self, outcome: str = "completed", turn: str = "t1", **fields: Any) -> Story:
        return self.add("turn_completed", turn, outcome=outcome, **fields)


def parts_of(events: Iterable[dict[str, Any]], fetch: Any = no_blob, limit: int = 65536, **more: Any) -> Iterator[Part]:
    yield SessionHead({**SESSION, **more}, "2026-11-22T11:00:00Z")
    yield from SessionParts(fetch, limit).parts(events)


def document(format_: str, story: Story, **options: Any) -> str:
    return "".join(WRITERS[format_](parts_of(story.events, **options)))


def as_json(story: Story, **options: Any) -> Any:
    return json.loads(document("json", story, **options))


class Reader(HTMLParser):
    """Reader of a page: its elements, and whether each is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(page)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


# -- what is in it ------------------------------------------------------------------------------------------------------


def whole_story() -> Story:
    story = Story().turn("Rename it.")
    story.add("message", blocks=[{"kind": "thinking", "text": "Where is it?"}, {"kind": "text", "text": "I look."}])
    story.add("tool_use", tool_use_id="a", name="Edit",
              input={"file_path": "/srv/a.py", "old_string": "x = 1\ny", "new_string": "x = 2\ny"})  # fmt: skip
    story.add("tool_result", tool_use_id="a", content="changed", is_error=False)
    story.add("tool_use", tool_use_id="b", name="Bash", input={"command": "make"})
    story.add("tool_result", tool_use_id="b", content="no rule", is_error=True)
    story.add("permission_denied", name="Write", reason="not allowed")
    return story.says("Done.").ends(duration_s=8.2, cost_usd=0.01, usage={"input_tokens": 1500}, text="Done.")


@pytest.mark.parametrize("format_", ["md", "html"])
def test_a_document_tells_the_whole_turn(format_: str) -> None:
    text = document(format_, whole_story(), title="Rename x")
    for found in ("Rename x", "/srv/app", "Rename it.", "Where is it?", "I look.", "-x = 1", "+x = 2", "no rule", "Done.",
                  "not allowed", "8.2 s", "1.5k tokens", "$0.0100", "Failed: Bash"):  # fmt: skip
        assert found in text, found
    assert text.count("<details>") == 5, "the thought, two calls and two results are folded"
    assert text.count("Done.") == 1, "the answer is not repeated from the turn's end"


def test_json_has_the_documented_shape() -> None:
    shown = as_json(whole_story())
    assert (shown["format"], shown["version"], shown["session"]["backend"]) == ("clisup-export", 1, "claude")
    [turn] = shown["turns"]
    assert turn["prompt"] == {"text": "Rename it.", "cut_bytes": 0, "images": 0}
    kinds = [item["type"] for item in turn["items"]]
    assert kinds == ["thinking", "answer", "tool_use", "tool_result", "tool_use", "tool_result", "note", "answer"]
    assert "+x = 2" in turn["items"][2]["diff"]["text"]
    assert (turn["end"]["outcome"], turn["end"]["cost_usd"]) == ("completed", 0.01)


def test_a_session_without_turns_and_a_running_turn_are_whole_documents() -> None:
    assert as_json(Story())["turns"] == []
    running = as_json(Story().turn().says("So far"))
    assert running["turns"][0]["end"] is None
    Reader(document("html", Story().turn().says("So far")))


def test_events_between_turns_and_queued_prompts_are_in_their_place() -> None:
    story = Story().add("gap", None, from_seq=1, to_seq=9, reason="retention").turn("one")
    story.add("prompt_accepted", "t2", delivery="queued", text="two")
    story.says("1").ends().add("turn_started", "t2", run=2).says("2", turn="t2").ends(turn="t2")
    first, one, two = as_json(story)["turns"]
    assert (first["turn_id"], first["items"][0]["kind"], first["end"]) == (None, "gap", None)
    assert [(turn["turn_id"], turn["prompt"]["text"]) for turn in (one, two)] == [("t1", "one"), ("t2", "two")]


def test_a_steered_prompt_stands_where_it_was_sent() -> None:
    story = Story().turn("one").says("a").add("prompt_accepted", delivery="steered", text="faster").says("b").ends()
    [turn] = as_json(story)["turns"]
    assert [item["text"] for item in turn["items"]] == ["a", "faster", "b"]


def test_a_prompt_that_never_began_is_told_with_its_end() -> None:
    story = Story().add("prompt_accepted", "t2", delivery="queued", text="two").ends("interrupted", "t2")
    [turn] = as_json(story)["turns"]
    assert (turn["prompt"]["text"], turn["end"]["outcome"], turn["items"]) == ("two", "interrupted", [])


def test_a_journal_of_an_older_clisup_gives_the_beginning_of_a_prompt() -> None:
    story = Story().add("prompt_accepted", delivery="delivered")
    story.add("turn_started", run=1, prompt_preview="Say hel…", prompt_bytes=17, prompt_images=2).ends()
    assert as_json(story)["turns"][0]["prompt"] == {"text": "Say hel…", "cut_bytes": 10, "images": 2}


def test_text_that_never_became_a_message_is_told_and_withdrawn_text_is_not() -> None:
    story = Story().turn()
    for id_ in ("m1", "m2", "m3"):
        story.add("content_delta", kind="text", text=f"part of {id_}", message_id=id_)
    story.says("whole", message_id="m1").add("retracted", message_id="m2").ends("interrupted")
    items = as_json(story)["turns"][0]["items"]
    assert [(item["type"], item["text"]) for item in items] == [("answer", "whole"), ("unfinished", "part of m3")]


def test_the_answer_comes_from_the_end_if_no_message_had_it() -> None:
    assert as_json(Story().turn().ends(text="42"))["turns"][0]["items"][0]["text"] == "42"


# -- limits -------------------------------------------------------------------------------------------------------------


def blob(data: bytes) -> Any:
    return lambda _name, limit: (data[:limit], len(data))


def test_a_huge_output_is_cut_at_the_limit_and_the_document_says_so() -> None:
    story = Story().turn().add("tool_use", tool_use_id="a", name="Bash", input={})
    story.add("tool_result", tool_use_id="a", content="head", blob="blob-1-out-9-0").ends()
    options = {"fetch": blob(b"x" * 3_000_000), "limit": 1000}
    assert as_json(story, **options)["turns"][0]["items"][1]["cut_bytes"] == 2_999_000
    for format_ in ("md", "html"):
        text = document(format_, story, **options)
        assert "cut: 2.9 MiB more" in text and len(text) < 10_000


def test_a_whole_prompt_comes_from_its_blob() -> None:
    blocks = [
        {"type": "text", "text": "long " * 10},
        {"type": "image", "data": "AAAA"},
        {"type": "text", "text": "end"},
    ]
    story = Story().add("prompt_accepted", delivery="delivered", text="long", blob="blob-1-out-p", images=1)
    story.add("turn_started", run=1).ends()
    prompt = as_json(story, fetch=blob(json.dumps(blocks).encode()))["turns"][0]["prompt"]
    assert prompt == {"text": "long " * 10 + "\nend", "cut_bytes": 0, "images": 1}
    assert as_json(story, fetch=blob(b"[broken"))["turns"][0]["prompt"] == {"text": "long", "cut_bytes": 0, "images": 1}


def test_a_large_edit_is_a_diff_too_and_one_over_the_limit_is_text() -> None:
    edit = {"file_path": "/a", "old_string": "a\n" * 50, "new_string": "b\n" * 50}
    story = Story().turn()
    story.add("tool_use", tool_use_id="a", name="Edit", input={"_head": '{"file_path'}, blob="blob-1-out-9-0").ends()
    whole = as_json(story, fetch=blob(json.dumps(edit).encode()))["turns"][0]["items"][0]
    assert whole["diff"]["text"].count("\n+b") == 50
    cut = as_json(story, fetch=blob(json.dumps(edit).encode()), limit=40)["turns"][0]["items"][0]
    assert cut["diff"] is None and cut["input"]["cut_bytes"] > 0 and cut["input"]["text"].startswith('{"file_path')


def test_a_document_is_written_while_the_events_are_read() -> None:
    """A reader that takes the first pieces makes the writer read only the first events."""
    read = 0

    def endless() -> Iterator[dict[str, Any]]:
        nonlocal read
        yield from Story().turn().events
        while True:
            read += 1
            yield {"type": "message", "ts": "", "turn_id": "t1", "blocks": [{"kind": "text", "text": "again"}]}

    for write in WRITERS.values():
        pieces = write(parts_of(endless()))
        for _ in range(100):
            next(pieces)
    assert read < 400


def test_what_is_remembered_is_bounded() -> None:
    story = Story().turn()
    for number in range(3 * MAX_HELD):
        story.add("prompt_accepted", f"t{number + 2}", delivery="queued", text="x")
        story.add("tool_use", tool_use_id=str(number), name="T", input={})
        story.add("content_delta", kind="text", text="x", message_id=str(number))
    conversation = SessionParts(no_blob)
    for _ in conversation.parts(story.events):
        pass
    held = (conversation._prompts, conversation._tools, conversation._unfinished)
    assert all(len(kept) <= MAX_HELD for kept in held)


def test_a_huge_change_is_not_compared_line_by_line() -> None:
    lines = "".join(f"{number}\n" for number in range(MAX_COMPARED + 1))
    diff = call_diff({"file_path": "/a", "old_string": lines, "new_string": "x"})
    assert diff.startswith("--- /a\n+++ /a\n-0\n") and diff.endswith("+x\n")


def test_the_names_of_a_diff_are_no_changed_lines_on_the_page() -> None:
    story = Story().turn()
    story.add("tool_use", tool_use_id="a", name="Edit",
              input={"file_path": "/a", "old_string": "-- one\n", "new_string": "++ two\n"})  # fmt: skip
    page = document("html", story)
    assert "<pre>--- /a\n+++ /a\n@@" in page
    assert "<del>--- one</del><ins>+++ two</ins>" in page


# -- hostile text -------------------------------------------------------------------------------------------------------


def hostile_story() -> Story:
    story = Story().turn(HOSTILE)
    story.add("message", blocks=[{"kind": "thinking", "text": HOSTILE}, {"kind": "text", "text": HOSTILE}])
    story.add("message", synthetic=True, blocks=[{"kind": "text", "text": HOSTILE}])
    story.add("tool_use", tool_use_id="a", name=HOSTILE, input={HOSTILE: HOSTILE, "command": HOSTILE})
    story.add(
        "tool_use", tool_use_id="b", name="Edit", input={"path": HOSTILE, "old_string": "", "new_string": HOSTILE}
    )
    story.add("tool_result", tool_use_id="a", content=f"```\n{HOSTILE}\n```````\n{HOSTILE}")
    story.add("notice", code="x", message=HOSTILE)
    return story.ends("failed", error={"kind": "server", "message": HOSTILE}, denied=[HOSTILE])


def test_no_text_of_others_becomes_html_on_the_page() -> None:
    page = document("html", hostile_story(), title=HOSTILE, model=HOSTILE, labels={HOSTILE: HOSTILE})
    reader = Reader(page)
    tags = {tag for tag, _ in reader.seen}
    assert not tags & {"script", "img", "iframe", "link", "a", "svg", "base", "form", "object"}
    assert not [name for _, attributes in reader.seen for name in attributes if name.startswith("on")]
    assert "alert(1)" in reader.text, "it is shown as text"
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", page)
    assert any("default-src 'none'" in (attributes.get("content") or "") for _, attributes in reader.seen)
    assert "http" not in page.replace("http-equiv", ""), "nothing is loaded"


def test_no_text_of_others_becomes_html_or_control_characters_in_markdown() -> None:
    text = document("md", hostile_story(), title=HOSTILE, model=HOSTILE, labels={HOSTILE: HOSTILE})
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e]", text)
    outside, fence = [], ""
    for line in text.split("\n"):
        if fence:
            fence = "" if line == fence else fence
        elif line.startswith("```"):
            fence = re.match("`+", line).group()  # type: ignore[union-attr]
        else:
            outside.append(line)
    assert fence == ""
    tags = set(re.findall(r"<[^>]*>", "\n".join(outside)))
    assert tags == {"<details>", "<summary>", "</summary>", "</details>"}


def test_json_keeps_every_character() -> None:
    assert as_json(hostile_story())["turns"][0]["prompt"]["text"] == HOSTILE


@pytest.mark.parametrize(
    ("text", "safe"),
    [
        ("a <b> c", "a &lt;b> c"),
        ("`List<int>` and <b>", "`List<int>` and &lt;b>"),
        ("```py\nx < y\n```\n<b>", "```py\nx < y\n```\n&lt;b>"),
        ("```py\nx < y", "```py\nx < y\n```"),
        ("- a\n  ```\n<script>\n  ```", "- a\n  ```\n&lt;script>\n  ```"),
        ("> ```\n<script>\n> ```", "> ```\n&lt;script>\n> ```"),
        ("```\n ```\n<script>\n```", "````text\n```\n ```\n<script>\n```\n````"),
        ("a ` b\n` <script> `", "a ` b\n` &lt;script> `"),
        ("| `a | <script> b` |", "| `a | &lt;script> b` |"),
        ("\\` <script> `", "\\` &lt;script> `"),
        ("![x](http://evil/)", "!\\[x](http://evil/)"),
    ],
)
def test_only_certain_code_keeps_its_angle_brackets(text: str, safe: str) -> None:
    assert safe_markdown(text) == safe


# -- real CLIs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", PATHS, ids=name_of)
def test_what_real_clis_said_can_be_exported(path: Path) -> None:
    decoded = [to_builtins(event) for event in Recording(path).events()]
    events = [{"session_id": "s", "ts": "2026-11-22T10:15:02Z", "turn_id": "t1", **event} for event in decoded]
    Reader("".join(write_html(parts_of(events))))
    assert "".join(write_markdown(parts_of(events)))
    assert json.loads("".join(write_json(parts_of(events))))["format"] == "clisup-export"


def test_a_patch_of_codex_is_a_diff() -> None:
    events = [to_builtins(event) for event in Recording.of("codex/file_change").events()]
    events = [{"session_id": "s", "ts": "", "turn_id": "t1", **event} for event in events]
    assert "+hello" in "".join(write_markdown(parts_of(events)))


@pytest.mark.parametrize(
    "link",
    [
        "[a](javascript:alert(1))",
        "[a]( JaVaScRiPt:alert(1))",
        "[a](data:text/html,x)",
        "[a](&#106;avascript:alert(1))",
        "[a](java\\script:x)",
        "[a]: javascript:alert(1)",
        "[a]:\njavascript:alert(1)",
        "[a](\njavascript:alert(1))",
        "[a](vbscript:x)",
        "[a](file:///etc/passwd)",
        "[a](<javascript:alert(1)>)",
        "[![b](x)](javascript:alert(1))",
    ],
)
def test_an_answer_has_no_link_that_runs_something(link: str) -> None:
    assert "](" not in safe_markdown(link).replace("](x)", "") and "]:" not in safe_markdown(link)


def test_an_answer_keeps_its_links_to_pages_and_files() -> None:
    text = '[a](https://x.example/y?z=1#b) [c](docs/a.md) [d](#e) [f](/g "h") [i](mailto:a@b.example)\n[j]: https://x.example'
    assert safe_markdown(text) == text
