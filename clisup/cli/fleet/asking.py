"""Questions to all boxes at once: bounded in number and in time, with one answer or one error of each box."""

from __future__ import annotations

import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

from clisup.cli.failure import usage
from clisup.cli.views.terminal import Ink, clip, plain
from clisup.client.raw import JsonObject
from clisup.errors import EXIT_OK, ClisupError, WorldError, box_away
from clisup.fleet.book import boxes
from clisup.fleet.member import joined
from clisup.locations import HERE, socket_for_client

__all__ = [
    "AT_ONCE",
    "MALFORMED",
    "PATIENCE_S",
    "BoxAnswer",
    "ask_all",
    "everywhere",
    "exit_code",
    "failure_of",
    "malformed",
    "path_of",
    "print_failure",
    "print_failures",
]

AT_ONCE = 16
"""Boxes that are asked at the same time."""

PATIENCE_S = 30.0
"""Seconds for the answer of one box, its connection included."""

MALFORMED = (KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What code raises on an answer of a form that clisup does not know."""

_FAILURE = 600
_T = TypeVar("_T")


class BoxAnswer(NamedTuple, Generic[_T]):
    """Answer of one box: a value, or an error."""

    box: str
    value: _T | None
    error: ClisupError | None


def everywhere() -> list[str]:
    """Return this machine and all boxes. Raises `UsageError(usage)` without a box and without a fleet."""
    known = list(boxes(os.environ))
    if not known and joined(os.environ) is None:
        raise usage("cannot ask all boxes, because none is known", hint="clisup fleet add NAME ssh://HOST")
    return [HERE, *known]


def path_of(box: str) -> str:
    """Return the path for a client of a box."""
    return socket_for_client({**os.environ, "CLISUP_ON": box}, os.getuid())


def ask_all(names: Sequence[str], ask: Callable[[str], _T]) -> list[BoxAnswer[_T]]:
    """Return what `ask` returns for each box, in the order of the names. `ask` gets a client's path.

    This machine's daemon has no row if it does not run. Boxes that do not answer in time have an error.
    """
    found: dict[str, BoxAnswer[_T]] = {}
    done: queue.SimpleQueue[BoxAnswer[_T]] = queue.SimpleQueue()
    waiting, asked = list(names), dict[str, float]()
    while waiting or asked:
        while waiting and len(asked) < AT_ONCE:
            asked[waiting[0]] = time.monotonic() + PATIENCE_S
            # A daemon thread: a box that never answers does not hold the command up.
            threading.Thread(target=_ask_one, args=(waiting.pop(0), ask, done), daemon=True).start()
        try:
            answer = done.get(timeout=max(0.0, min(asked.values()) - time.monotonic()) + 0.01)
            if asked.pop(answer.box, None) is not None:
                found[answer.box] = answer
        except queue.Empty:
            for box in [box for box, until in asked.items() if until <= time.monotonic()]:
                del asked[box]
                found[box] = BoxAnswer(box, None, box_away(box, f"no answer came within {PATIENCE_S:g} s"))
    absent = found.get(HERE)
    if absent is not None and absent.error is not None and absent.error.kind == "daemon_not_running":
        del found[HERE]
    return [found[name] for name in names if name in found]


def _ask_one(box: str, ask: Callable[[str], _T], done: queue.SimpleQueue[BoxAnswer[_T]]) -> None:
    try:
        done.put(BoxAnswer(box, ask(path_of(box)), None))
    except ClisupError as error:
        done.put(BoxAnswer(box, None, error))
    except MALFORMED:
        done.put(BoxAnswer(box, None, malformed(box)))
    except BaseException as error:
        done.put(BoxAnswer(box, None, WorldError(f"cannot ask box {box}, because of {type(error).__name__}", box=box)))


def malformed(box: str) -> WorldError:
    """Return the error for an answer that has no form that clisup knows."""
    return WorldError(
        f"cannot use the answer of box {box}, because it has another form than this clisup knows",
        hint="upgrade the older of the two",
        box=box,
    )


def exit_code(answers: Sequence[BoxAnswer[_T]]) -> int:
    """Return 0 if at least one box answered, else the exit code of the first error."""
    errors = [answer.error for answer in answers if answer.error is not None]
    return errors[0].exit_code if errors and len(errors) == len(answers) else EXIT_OK


def failure_of(answer: BoxAnswer[_T]) -> JsonObject:
    """Return the error of a box as JSON: kind, message, hint."""
    assert answer.error is not None
    error = answer.error
    return {"box": answer.box, "error": {"kind": error.kind, "message": error.message, "hint": error.hint}}


def print_failures(answers: Sequence[BoxAnswer[_T]]) -> None:
    """Print one line on stderr for each box that failed."""
    sys.stdout.flush()
    for answer in answers:
        if answer.error is not None:
            print_failure(answer.box, answer.error)


def print_failure(box: str, error: ClisupError) -> None:
    """Print one line on stderr: the box, the error and the hint."""
    reason = str(error.data.get("reason") or error.message) if error.kind == "box_away" else error.message
    text = f"{reason}; {error.hint}" if error.hint else reason
    print(f"{Ink(sys.stderr)('red', box)}: {clip(plain(text), _FAILURE)}", file=sys.stderr)
