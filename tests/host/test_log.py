"""The log of a process: its three forms, its level, its last lines, and a stderr that nobody reads."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
from fake_journal import FakeJournal

from clisup.errors import ConfigurationError
from clisup.host import log
from clisup.host.log import (
    LOG,
    MAX_LINES,
    MAX_LINES_BYTES,
    Log,
    LogForm,
    LogOutput,
    StderrSender,
    configure_logging,
    event_logger,
)
from clisup.host.systemd.journal import JournalSocket
from clisup.policy.secrets import redact
from clisup.policy.secrets.redact import MASK, Redactor

CANARY = "canary-77aa-value"


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A log of the test's own, and the logger as it was before."""
    monkeypatch.setattr(log, "LOG", Log())
    handlers, level = log._LOGGER.handlers, log._LOGGER.level
    yield
    log._LOGGER.handlers, log._LOGGER.level, log._LOGGER.propagate = handlers, level, True


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[LogForm], Any]]:
    """`lines("json")` sets the log up; gives how to read what it wrote."""
    journal, file = FakeJournal(tmp_path / "journal"), (tmp_path / "stderr").open("wb")
    sender = JournalSocket(journal.path)
    monkeypatch.setattr(log, "JOURNAL_SOCKET", journal.path)
    monkeypatch.setattr(log, "StderrSender", lambda: StderrSender(file.fileno()))
    monkeypatch.setattr(log, "JournalSocket", lambda: sender)

    def configure(form: LogForm) -> Any:
        configure_logging("info", form)
        return lambda: journal.entries() if form == "journald" else (tmp_path / "stderr").read_text()

    with contextlib.closing(journal), contextlib.closing(sender), file:
        yield configure


def say() -> None:
    logger = event_logger()
    log.LOG.hide("backend", Redactor([CANARY]))
    log.LOG.hide_brought("s-1", [f"{CANARY}-brought"])
    logger.info("ready", version="1", socket=f"/tmp/{CANARY}", adopted=None)
    logger.info("session opened", session="s-1", backend=f"x{CANARY}-brought")
    logger.debug("client gone", pid=1)
    try:
        raise ValueError(f"{CANARY} and a prompt")
    except ValueError:
        logger.exception("request failed inside the daemon", method="ping")


def test_what_was_a_secret_before_a_reload_stays_one() -> None:
    """A CLI that was started with it may run on, and say it."""
    own = log.Log()
    own.hide("backend", Redactor(["the-first-token"]))
    own.hide("backend", Redactor(["the-second-token"]))
    assert own.redact("the-first-token the-second-token") == f"{MASK} {MASK}"


def test_json_is_one_object_a_line(lines: Callable[[LogForm], Any]) -> None:
    read = lines("json")
    say()
    first, second, third = [json.loads(line) for line in read().splitlines()]
    assert first.pop("timestamp").endswith("Z")
    assert first == {"level": "info", "event": "ready", "version": "1", "socket": f"/tmp/{MASK}"}
    assert second["backend"] == f"x{MASK}" and second["session"] == "s-1"
    assert "ValueError" in third["exception"] and third["level"] == "error"
    assert "canary" not in str([first, second]) and "and a prompt" not in third["exception"].split("\nValueError")[-1]


def test_the_console_is_for_people(lines: Callable[[LogForm], Any]) -> None:
    read = lines("console")
    say()
    text = read()
    assert "ready" in text and "Traceback" in text and text.count(MASK) == 2 and "client gone" not in text


@pytest.mark.parametrize("hostile", ["\x1b]52;c;aGk=\x07", "a\x9b31m", "two\nready lines", "\u202egnp.exe"])
def test_no_text_of_others_drives_the_console_or_makes_a_line_of_its_own(
    lines: Callable[[LogForm], Any], hostile: str
) -> None:
    read = lines("console")
    event_logger().info("turn ended", session=hostile, reasons=[hostile])
    (line,) = read().splitlines()
    assert "turn ended" in line
    assert not {char for char in line if not char.isprintable()} - set(" ")


@pytest.mark.parametrize(
    ("env", "coloured"),
    [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
)
def test_the_console_is_coloured_on_a_terminal_unless_it_shall_not_be(
    lines: Callable[[LogForm], Any], monkeypatch: pytest.MonkeyPatch, env: dict[str, str], coloured: bool
) -> None:
    read = lines("console")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    configure_logging("info", "console", env)
    say()
    assert ("\033[" in read()) is coloured


def test_the_journal_gets_fields_with_the_place_of_the_call(lines: Callable[[LogForm], Any]) -> None:
    read = lines("journald")
    say()
    ready, opened, failed = read()
    assert ready["MESSAGE"] == f"ready version=1 socket=/tmp/{MASK}" and ready["PRIORITY"] == "6"
    assert ready["CODE_FILE"] == __file__ and ready["CODE_FUNC"] == "say"
    assert opened["CLISUP_SESSION"] == "s-1"
    assert failed["PRIORITY"] == "3" and "\n" in failed["MESSAGE"]


def test_the_level_can_change_while_it_runs_and_a_developer_gets_the_words(lines: Callable[[LogForm], Any]) -> None:
    read = lines("json")
    log.LOG.set_level("warning")
    event_logger().info("ready")
    assert read() == ""
    log.LOG.set_level("debug")
    say()
    assert f"ValueError: {MASK} and a prompt" in read() and "client gone" in read()


def test_lines_for_the_log_of_a_program_that_uses_clisup_do_not_come_into_the_daemons(
    lines: Callable[[LogForm], Any],
) -> None:
    read = lines("json")
    logging.getLogger("clisup.llm.budget").warning("no price of a model is known")
    assert read() == ""


def test_a_flood_is_held_back_and_told_of(lines: Callable[[LogForm], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(log.clock, "monotonic", lambda: now[0])
    read = lines("json")
    logger = event_logger()
    for _ in range(1000):
        logger.error("cannot accept", error="x")
    logger.info("ready")
    now[0] = 60.0
    logger.error("cannot accept", error="x")
    found = [json.loads(line) for line in read().splitlines()]
    assert len(found) == 22 and found[-1]["held_back"] == 980 and found[-2]["event"] == "ready"


def test_the_last_lines_are_kept_by_number_and_by_size(lines: Callable[[LogForm], Any]) -> None:
    lines("json")
    logger = event_logger()
    for number in range(MAX_LINES + 10):
        logger.info("ready", sessions=number)
    kept = log.LOG.recent()
    assert (len(kept), kept[0]["sessions"], kept[-1]["sessions"]) == (MAX_LINES, 10, MAX_LINES + 9)
    assert [line["sessions"] for line in log.LOG.recent(2)] == [MAX_LINES + 8, MAX_LINES + 9]
    for _ in range(MAX_LINES):
        logger.info("ready", socket="x" * 4000)
    assert sum(len(json.dumps(line)) for line in log.LOG.recent()) <= MAX_LINES_BYTES


def test_a_secret_that_its_session_brought_is_not_known_after_that() -> None:
    mine = Log()
    mine.hide_brought("s", [CANARY])
    assert mine.redact(CANARY) == MASK
    mine.forget_brought("s")
    assert mine.redact(CANARY) == CANARY
    assert LOG is not mine


def test_without_a_journal_there_is_no_logging_to_it_and_auto_finds_its_way(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(log, "JOURNAL_SOCKET", str(tmp_path / "absent"))
    with pytest.raises(ConfigurationError, match="cannot log to the journal, because there is no"):
        configure_logging("info", "journald")
    there = os.fstat(2)
    env = {"JOURNAL_STREAM": f"{there.st_dev}:{there.st_ino}"}
    assert log._chosen("auto", env) == "json"
    (tmp_path / "absent").touch()
    assert log._chosen("auto", env) == "journald"
    assert log._chosen("auto", {}) == "json"
    assert log._chosen("console", env) == "console"


# -- a stderr that nobody reads -------------------------------------------------------------------------------------------


def test_a_pipe_that_nobody_reads_holds_nobody_up_and_is_told_what_it_missed() -> None:
    read, write = os.pipe()
    outlet = LogOutput(StderrSender(write), lambda record: json.dumps(record).encode())
    for number in range(200):
        outlet.msg({"event": str(number), "text": "x" * 1000})
    assert outlet.dropped > 0
    written = os.read(read, 1 << 20).splitlines()
    assert len(written) == 200 - outlet.dropped and all(json.loads(line) for line in written)
    outlet.msg({"event": "after"})
    lost, after = [json.loads(line) for line in os.read(read, 1 << 20).splitlines()]
    assert (lost["event"], lost["count"], after["event"]) == ("log lines dropped", outlet.dropped, "after")
    os.close(read)
    os.close(write)


def test_a_line_that_broke_off_does_not_swallow_the_next() -> None:
    read, write = os.pipe()
    outlet = LogOutput(StderrSender(write), lambda record: json.dumps(record).encode())
    outlet.msg({"event": "long", "text": "x" * 1_000_000})  # more than a pipe holds
    assert outlet.dropped == 1
    assert len(os.read(read, 1 << 20)) < 1_000_000
    outlet.msg({"event": "after"})
    told = os.read(read, 1 << 20).split(b"\n")
    assert told[0] == b"" and [json.loads(line)["event"] for line in told[1:3]] == ["log lines dropped", "after"]
    os.close(read)
    os.close(write)


def test_a_reader_that_has_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    outlet = LogOutput(StderrSender(write), lambda record: b"x")
    outlet.msg({"event": "x"})
    assert outlet.dropped == 1
    os.close(write)


def test_a_thousand_sessions_with_secrets_do_not_make_each_line_look_for_shapes_a_thousand_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An error's answer took 50 ms of everybody's time."""
    looks: list[str] = []
    shapes = redact._SHAPES
    monkeypatch.setattr(
        redact, "_SHAPES", SimpleNamespace(finditer=lambda text: looks.append(text) or shapes.finditer(text))
    )
    many = Log()
    for number in range(1000):
        many.hide_brought(f"s-{number}", [f"{CANARY}-{number}-"])
    assert many.redact(f"a {CANARY}-999- sk-{'a' * 20}") == f"a {MASK} {MASK}"
    assert len(looks) == 1


def test_a_terminal_that_stands_still_holds_nobody_up() -> None:
    """It says that it is ready as long as it has room for a byte: a line that does not fit is dropped, not waited for."""
    master, terminal = os.openpty()
    outlet = LogOutput(StderrSender(terminal), lambda record: b"x" * 300)
    with contextlib.closing(open(master, "rb", buffering=0)), contextlib.closing(open(terminal, "wb", buffering=0)):
        for _ in range(1000):
            outlet.msg({})  # would not return
        assert outlet.dropped > 0
        assert os.get_blocking(terminal), "whoever shares it waits as before"
