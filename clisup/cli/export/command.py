"""`clisup export`: a session as Markdown, HTML or JSON. Without a daemon the files are read."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TextIO

import click

from clisup.cli.export.as_json import write_json
from clisup.cli.export.markdown import write_markdown
from clisup.cli.export.page import write_html
from clisup.cli.export.parts import Part, SessionHead
from clisup.cli.export.session_parts import MAX_OUTPUT_BYTES, FetchBlob, SessionParts
from clisup.cli.failure import usage
from clisup.cli.lookup import find_session, stored
from clisup.cli.options import session_argument
from clisup.cli.views.events import Event
from clisup.client.failures import AWAY
from clisup.client.raw import JsonObject
from clisup.client.sync import RepeatingClient
from clisup.errors import EXIT_OK, ClisupError

__all__ = ["export"]

_WRITERS: dict[str, Callable[[Iterable[Part]], Iterator[str]]] = {
    "md": write_markdown,
    "html": write_html,
    "json": write_json,
}
_SUFFIXES = {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html", ".json": "json"}
_MOST_OUTPUT = 16 * 1024 * 1024
_EVENTS = [
    "prompt_accepted", "turn_started", "content_delta", "retracted", "message", "tool_use", "tool_result", "turn_completed",
    "rate_limit", "permission_denied", "approval_resolved", "retry", "watchdog", "notice", "task", "session_forked",
    "session_seeded",
]  # fmt: skip


@click.command("export")
@session_argument
@click.option("--format", "format_", type=click.Choice(list(_WRITERS)),
              help="The format (default: by the suffix of --output, else md).")  # fmt: skip
@click.option("-o", "--output", metavar="FILE", type=click.Path(dir_okay=False), help="Write to FILE, not to stdout.")
@click.option("--max-output", type=click.IntRange(0, _MOST_OUTPUT), default=MAX_OUTPUT_BYTES, metavar="BYTES",
              help=f"Limit of each tool call and each result (default {MAX_OUTPUT_BYTES}); the rest is cut.")  # fmt: skip
def export(session: str, format_: str | None, output: str | None, max_output: int) -> int:
    """Write SESSION as Markdown, HTML or JSON.

    The document has the prompts, the answers, the thinking and the tool calls of every turn, with times, tokens and costs.
    Tool calls are folded, and edits of files are shown as diffs. The HTML file needs no other file and has no scripts.

    If no daemon is running, the session is read from its files, and the exit code is 3. The document holds prompts and
    outputs in plain text.

    \b
    Example:
      clisup export 3f2a > session.md
      clisup export 3f2a -o session.html
      clisup export 3f2a --format json | jq -r '.turns[].end.outcome'
    """
    write = _WRITERS[format_ or _by_suffix(output)]
    try:
        client = RepeatingClient.connect(name="clisup-export")
    except ClisupError as error:
        if error.kind != "daemon_not_running":
            raise
        from clisup.cli.offline import document_from_disk

        head, events, fetch = document_from_disk(session)
        _write(write(_parts(head, events, fetch, max_output)), output)
        return error.exit_code
    with client:
        session_id = find_session(client, session)
        head = client.call("session/get", session_id=session_id)
        parts = _parts(head, stored(client, session_id, types=_EVENTS), _fetch(client, session_id), max_output)
        _write(write(parts), output)
    return EXIT_OK


def _by_suffix(output: str | None) -> str:
    suffix = os.path.splitext(output or "x.md")[1].lower()
    if suffix not in _SUFFIXES:
        raise usage(
            f"cannot tell the format of {output}, because its suffix is unknown", hint="give --format md, html or json"
        )
    return _SUFFIXES[suffix]


def _parts(head: JsonObject, events: Iterable[Event], fetch: FetchBlob, max_output: int) -> Iterator[Part]:
    yield SessionHead(head, datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"))
    yield from SessionParts(fetch, max_output).parts(events)


def _fetch(client: RepeatingClient, session_id: str) -> FetchBlob:
    """Return a function that reads the beginning of a blob. A blob that is gone is empty."""
    from base64 import b64decode

    def fetch(blob: str, limit: int) -> tuple[bytes, int]:
        data, size = b"", 0
        try:
            while len(data) < limit:
                asked = min(limit - len(data), 1024 * 1024)
                page = client.call("session/blob", session_id=session_id, blob=blob, offset=len(data), limit=asked)
                data, size = data + b64decode(page["data_base64"]), int(page["size"])
                if page["eof"]:
                    break
        except ClisupError as error:
            if error.kind in AWAY:
                raise
        return data, size

    return fetch


# -- output -------------------------------------------------------------------------------------------------------------


def _write(pieces: Iterator[str], output: str | None) -> None:
    if output is None:
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
        for piece in pieces:
            sys.stdout.write(piece)
        sys.stdout.flush()
        return
    try:
        with _file(output) as file:
            for piece in pieces:
                file.write(piece)
    except OSError as error:
        raise usage(f"cannot write {output}, because {error.strerror or error}") from None


@contextmanager
def _file(output: str) -> Iterator[TextIO]:
    """Open the file. A regular file gets its name at the end, whole; a failure leaves the old file as it was."""
    if os.path.exists(output) and not os.path.isfile(output):
        with open(output, "w", encoding="utf-8", errors="replace") as file:
            yield file
        return
    target = os.path.realpath(output)
    fd, path = tempfile.mkstemp(dir=os.path.dirname(target), prefix=".clisup-export-")  # readable by its owner alone
    try:
        with open(fd, "w", encoding="utf-8", errors="replace") as file:
            yield file
        os.replace(path, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        raise
