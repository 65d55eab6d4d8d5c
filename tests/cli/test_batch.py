"""Lines and views of `clisup batch`, without a daemon."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from clisup.cli.batch import lines as lines_module
from clisup.cli.batch import view as view_module
from clisup.cli.batch.lines import BatchLine, LineDefaults, read_lines
from clisup.cli.batch.view import BatchView
from clisup.cli.batch.work import LineResult
from clisup.errors import UsageError

HERE = LineDefaults(name="nightly", directory="/srv")


def problems(text: str | bytes) -> list[str]:
    with read_lines(io.BytesIO(text if isinstance(text, bytes) else text.encode()), HERE) as lines:
        return lines.check()


def items_of(text: str, defaults: LineDefaults = HERE) -> list[BatchLine]:
    with read_lines(io.BytesIO(text.encode()), defaults) as lines:
        assert lines.check() == []
        return list(lines)


# -- lines --------------------------------------------------------------------------------------------------------------


def test_a_line_is_an_object_a_json_string_or_plain_text() -> None:
    items = items_of('Say hello.\n\n"two\\nlines"\n{"prompt": "three", "cwd": "app", "timeout": 5, "model": null}\n')
    assert [item.prompt["prompt"] for item in items] == ["Say hello.", "two\nlines", "three"]
    assert [item.number for item in items] == [1, 3, 4]
    assert [item.session["cwd"] for item in items] == ["/srv", "/srv", "/srv/app"]
    assert items[2].prompt["timeout_s"] == 5.0 and "model" not in items[2].session


def test_with_a_prompt_a_plain_line_is_a_directory() -> None:
    defaults = replace(HERE, prompt="Is the licence named?")
    items = items_of('app/\n"/opt/with blank"\n{"cwd": "x", "prompt": "Another one."}\n', defaults)
    assert [item.session["cwd"] for item in items] == ["/srv/app", "/opt/with blank", "/srv/x"]
    assert [item.prompt["prompt"] for item in items] == ["Is the licence named?"] * 2 + ["Another one."]


def test_a_line_wins_over_the_options_and_labels_are_joined() -> None:
    defaults = replace(HERE, members={"backend": "claude", "model": "haiku"}, labels={"team": "a", "x": "1"})
    [item] = items_of('{"prompt": "p", "model": "opus", "labels": {"x": "2"}}', defaults)
    assert (item.session["backend"], item.session["model"]) == ("claude", "opus")
    assert item.session["labels"] == {"batch": "nightly", "team": "a", "x": "2"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"prompt": "x"', "line 1: it is not JSON"),
        ("[1]", "line 1: it is neither a JSON object nor a string"),
        ('{"cwd": "/"}', "line 1: it has no prompt"),
        ('{"prompt": "  "}', "line 1: its prompt is empty"),
        ('{"prompt": 7}', "line 1: its prompt is not a string"),
        ('{"prompt": "x", "promt": "y"}', "line 1: it has an unknown member 'promt' (did you mean prompt?)"),
        ('{"prompt": "x", "timeout": true}', "line 1: its timeout is not a number of seconds"),
        ('{"prompt": "x", "timeout": 0}', "line 1: its timeout 0 is not above 0"),
        ('{"prompt": "x", "timeout": NaN}', "line 1: it is not JSON"),
        ('{"prompt": "x", "labels": {"a": 1}}', "line 1: its labels is not an object of strings"),
        ('{"prompt": "x", "mode": "fast"}', 'line 1: its mode is not "one-shot" or "live"'),
        ('{"prompt": "x", "key": ""}', "line 1: its key has 0 characters"),
        ('"\\ud800"', "line 1: a text in it holds half of a surrogate pair"),
        (b"\xff\xfe", "line 1: it is not UTF-8"),
        ('{"prompt": "x", "key": "k"}\n{"prompt": "y", "key": "k"}', "line 2: the key 'k' is that of an earlier line"),
    ],
)
def test_a_bad_line_is_named_with_its_reason(line: str | bytes, why: str) -> None:
    [problem] = problems(line)
    assert problem.startswith(why)


def test_a_file_that_is_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINES", 2)
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 10)
    with pytest.raises(UsageError, match="more than 2 lines"):
        problems("a\nb\nc\n")
    with pytest.raises(UsageError, match="line 2, because it has more than 10 bytes"):
        problems("a\n" + "b" * 20)


def test_many_bad_lines_are_listed_up_to_a_limit() -> None:
    assert len(problems("{\n" * 100)) == lines_module.MAX_PROBLEMS


# -- ids ----------------------------------------------------------------------------------------------------------------


def ids(text: str, defaults: LineDefaults = HERE) -> list[str]:
    return [item.session_id(1) for item in items_of(text, defaults)]


def test_ids_follow_from_the_name_and_the_content_of_a_line_and_not_from_its_place() -> None:
    one, two = ids("a\nb\n")
    assert ids("b\n\na\n") == [two, one]
    assert ids("a\nb\n", replace(HERE, name="other")) != [one, two]
    assert ids("a\n", replace(HERE, members={"backend": "codex"})) != [one]


def test_equal_lines_are_different_lines() -> None:
    assert len(set(ids("a\na\na\n"))) == 3
    assert ids("a\na\n") == ids("a\na\na\n")[:2]


def test_labels_and_limits_do_not_make_another_line() -> None:
    assert ids('{"prompt": "a", "timeout": 5, "title": "t", "labels": {"x": "1"}}') == ids("a")


def test_a_key_names_a_line_whatever_else_it_holds() -> None:
    assert ids('{"prompt": "a", "key": "k"}') == ids('{"prompt": "b", "key": "k", "cwd": "/"}') != ids("a")


def test_each_attempt_has_a_session_of_its_own() -> None:
    [item] = items_of("a")
    assert item.session_id(1) != item.session_id(2)


# -- command line -------------------------------------------------------------------------------------------------------


def test_bad_lines_end_the_command_before_it_needs_a_daemon(clisup: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = clisup("batch", "-", stdin='good\n{"prompt": "x", "\\u001b[31moops": 1}\n{\n')
    assert (code, out) == (2, "")
    assert "line 2: it has an unknown member" in err and "line 3: it is not JSON" in err
    assert "2 lines are wrong" in err and "no prompt was sent" in err and "\x1b" not in err


def test_an_empty_batch_and_contrary_options_are_refused(
    clisup: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    assert "it has no lines" in clisup("batch", "-", stdin="\n")[2]
    assert "give --keep or --rm" in clisup("batch", "-", "--keep", "--rm", stdin="x")[2]
    file = tmp_path / "p"
    file.write_text("x")
    assert "two prompts" in clisup("batch", "-", "--prompt", "x", "--prompt-file", str(file), stdin="x")[2]
    assert "empty prompt" in clisup("batch", "-", "--prompt", " ", stdin="x")[2]
    schema = clisup("batch", "-", "--output-schema", str(file), stdin="x")
    assert "it is not JSON" in schema[2]
    assert clisup("batch", str(tmp_path / "none"))[0] == 2
    assert clisup("batch", "-", "-j", "0", stdin="x")[0] == 2
    assert clisup("batch", "-", stdin="x")[0] == 3, "no daemon runs"


# -- views --------------------------------------------------------------------------------------------------------------


def result(number: int, outcome: str = "completed", **end: object) -> LineResult:
    item = BatchLine(number, None, "", "nightly", {}, {"prompt": f"Prompt {number} \x1b[31mred\x1b[0m " + "long " * 40})
    return LineResult(item, f"{number:08d}-0000", {"outcome": outcome, **end})


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def at(columns: int) -> None:
        monkeypatch.setattr(view_module, "width_of", lambda _stream: columns)

    return at


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_a_row_is_one_line_at_every_width(
    columns: int, terminal: Callable[[int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(columns)
    view = BatchView(3, as_json=False)
    for number in (3, 1, 2):
        view.tell(result(number, "timed_out" if number == 3 else "completed", duration_s=63.0, cost_usd=0.0123))
    capsys.readouterr()
    view.print_table()
    head, *rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 3 and [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert all(len(row) <= columns for row in (head, *rows))
    assert "OUTCOME" in head and "PROMPT" in head and "timed out" in rows[2]
    assert ("COST" in head) == (columns > 60)
    assert "\x1b[31m" not in "".join(rows)


def test_the_summary_counts_every_line(capsys: pytest.CaptureFixture[str]) -> None:
    view = BatchView(5, as_json=False)
    view.tell(result(1, cost_usd=0.5))
    view.tell(LineResult(result(2).item, "s", {"outcome": "completed", "cost_usd": 9.0}, before=True))
    view.tell(result(3, denied=["Bash"]))
    view.tell(result(4, "failed", error={"kind": "overloaded", "message": "busy"}))
    assert view.summary() == "5 lines: 2 completed, 1 denied, 1 failed, 1 without an end; 1 had ended before; $0.5000"
    assert "[4/5] line 4: failed overloaded: busy" in capsys.readouterr().err
    view.print_table()
    assert "line 3: the CLI was denied: Bash" in capsys.readouterr().out


def test_a_long_batch_keeps_a_bounded_number_of_rows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(view_module, "MAX_ROWS", 10)
    view = BatchView(100, as_json=False)
    for number in range(1, 101):
        view.tell(result(number, "failed" if number % 50 == 0 else "completed"))
    assert len(view._rows) <= 11
    capsys.readouterr()
    view.print_table()
    assert [row.split()[0] for row in capsys.readouterr().out.splitlines()[1:]] == ["50", "100"]


def test_json_prints_one_object_a_line_and_no_words(capsys: pytest.CaptureFixture[str]) -> None:
    view = BatchView(1, as_json=True)
    view.tell(result(1, "failed", text="a\nb", duration_s=1.5, error={"kind": "server", "message": "m"}))
    view.note("not printed in a pipe")
    out, err = capsys.readouterr()
    shown = json.loads(out)
    assert (out.count("\n"), err) == (1, "")
    assert (shown["line"], shown["outcome"], shown["exit_code"], shown["text"]) == (1, "failed", 1, "a\nb")
