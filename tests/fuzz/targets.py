"""What is fuzzed beside the decoder. A target is `(data, salt)`: it raises nothing, whatever the bytes; `salt` decides the rest."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from functools import cache

from pydantic import ValidationError

from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.claude.fork import ClaudeFork
from clisup.backends.claude.transcript import ClaudePresence
from clisup.backends.recording import parse_recording, play
from clisup.client.raw import decode
from clisup.errors import KINDS, ClisupError, ConfigurationError, UsageError, error_from_wire
from clisup.host.config_file import ConfigFile
from clisup.model.journal import JournalBlock, Record, read_entries, scan
from clisup.model.lines.framing import Line, LineFramer
from clisup.model.sessions.turn_trace import TurnTrace
from clisup.model.structs import wrong_field
from clisup.policy.environment.scrub_list import parse_list
from clisup.policy.secrets.erasing import Eraser, machine_names
from clisup.policy.secrets.redact import Redactor
from clisup.wire.jsonrpc import FrameReader, FrameRefusal, Request, encode_error, encode_result
from clisup.wire.methods import METHODS
from clisup.wire.params import PromptParams
from tests.fuzz.doors import gateway, pages
from tests.fuzz.pipeline import decoder
from tests.fuzz.promises import cut, promise, strict_json

__all__ = ["SECRET", "TARGETS", "Target"]

Target = Callable[[bytes, int], None]
_LIMITS = (7, 64, 700, 1 << 26)
_FRAMES = (64, 1500, 1 << 24)


def framer(data: bytes, salt: int) -> None:
    """Any split of the bytes gives the lines that a plain split gives, at their offsets."""
    limit, offset = _LIMITS[salt // 16 % 4], salt % 1000  # `cut` asks for the lower bits
    expected = _plain(data, offset, limit)
    for pieces in ([data], cut(data, salt)):
        reader = LineFramer(offset=offset, limit=limit)
        lines = [line for piece in pieces for line in reader.feed(piece)]
        promise(
            reader.offset - reader.pending == (lines[-1].end if lines else offset), "pending is what has no newline"
        )
        last = reader.close()
        promise([*lines, *([last] if last else [])] == expected, "any split gives the same lines")
        promise(reader.offset == offset + len(data) and not reader.pending, "the offsets are those of the bytes")


def _plain(data: bytes, offset: int, limit: int) -> list[Line]:
    lines, at = [], offset
    *whole, rest = data.split(b"\n")
    for piece in whole:
        lines.append(_line(at, piece, limit, newline=1))
        at = lines[-1].end
    return [*lines, _line(at, rest, limit, newline=0)] if rest else lines


def _line(at: int, piece: bytes, limit: int, *, newline: int) -> Line:
    over = len(piece) > limit
    return Line(at, at + len(piece) + newline, piece[: min(512, limit)] if over else piece, over, newline == 1)


def wire(data: bytes, salt: int) -> None:
    """Each frame is a request or a refusal, for every split; refusals and the answers to bad params are good JSON."""
    limit = _FRAMES[salt % 3]
    items = _read(limit, [data])
    promise(items == _read(limit, cut(data, salt)), "any split gives the same requests and refusals")
    lines = [line for line in data.split(b"\n")[:-1] if line.strip(b" \t\r")]  # a form feed is no blank of JSON's
    for item, line in zip(items, lines, strict=False):  # half a frame gives nothing, or the one refusal of its size
        if isinstance(item, Request):
            strict_json(line.strip(b"\r"), "a request that is taken is strict JSON")
            _check_request(item)
    for item in items:
        if isinstance(item, FrameRefusal):
            _check_answer(item.answer)


def _read(limit: int, pieces: list[bytes]) -> list[Request | FrameRefusal]:
    reader, items = FrameReader(limit), []
    for piece in pieces:
        reader.feed(piece)
        while (item := reader.next()) is not None:
            items.append(item)
            if isinstance(item, FrameRefusal) and item.fatal:
                promise(not reader.held, "nothing is held of a frame that was refused for its size")
                return items
    return items


def _check_answer(line: bytes) -> None:
    promise(line.endswith(b"\n"), "an answer is a line")
    frame = strict_json(line[:-1])
    promise(frame["jsonrpc"] == "2.0" and frame["error"]["data"]["kind"] in KINDS, "a refusal has a known kind")
    promise(len(line) < 4096, "a refusal is small, whatever was sent")


def _check_request(request: Request) -> None:
    raw = json.dumps(request.params, ensure_ascii=False, allow_nan=False).encode()  # no NaN, no lone surrogate got in
    promise(request.id is None or type(request.id) in (int, str), "an id is a string or an integer")
    if request.id is not None:
        promise(strict_json(encode_result(request.id, b"null")[:-1])["id"] == request.id, "an answer carries its id")
    method = METHODS.get(request.method)
    if method is None or len(raw) > 100_000:
        return
    try:
        params = method.params.model_validate(request.params)
    except ValidationError as error:
        where, reason = wrong_field(error)
        _check_answer(encode_error(request.id, UsageError(f"{where!r} is wrong: {reason}", param=where)))
        return
    strict_json(params.model_dump_json().encode())
    if isinstance(params, PromptParams):
        params.text.encode()


def client(data: bytes, _salt: int) -> None:
    """A line of the daemon's is a frame or a ValueError; its error becomes one that a program can branch on."""
    try:
        frame = decode(data)
    except ValueError:
        return
    promise(isinstance(frame, dict), "a frame is an object")
    if "error" in frame:
        promise(isinstance(error_from_wire(frame["error"]), ClisupError), "an error of ours")


def journal(data: bytes, _salt: int) -> None:
    """A damaged journal is a ValueError; what is read are records, and what damage leaves is read all the same."""
    kept, whole = read_entries(data, skip_damage=True)
    promise(0 <= whole <= len(data), "what is torn is the end")
    for record in kept:
        promise(
            isinstance(record, Record) and (record.event is None) != (record.snapshot is None), "an event or a snapshot"
        )
    for _, entry in scan(data):
        if isinstance(entry, JournalBlock):
            promise(len(entry.events()) == len(entry.sources) == entry.frames.end - entry.frames.first, "a whole block")
    try:
        promise(read_entries(data) == (kept, whole), "both ways read the same where nothing is damaged")
    except ValueError:
        return


def lists(data: bytes, salt: int) -> None:
    """A scrub list parses, or the error names what is wrong."""
    kind = ("scrub", "allow", "deny")[salt % 3]
    try:
        parse_list("claude", kind, data.decode("utf-8", "replace"))  # type: ignore[arg-type]
    except ConfigurationError as error:
        promise("cannot" in error.message, "an error says what cannot be done")


def config(data: bytes, _salt: int) -> None:
    """A configuration file is read, or the error names what is wrong."""
    path = _scratch()
    with open(path, "wb") as file:
        file.write(data)
    try:
        ConfigFile(path, required=True).read()
    except ConfigurationError as error:
        promise("cannot" in error.message, "an error says what cannot be done")


SECRET = 'canary "of" all\\secrets'
_ERASED = Redactor([SECRET])
_NAMES = machine_names(home="/home/alice", user="alice", host="box7")


def recording(data: bytes, _salt: int) -> None:
    """A meta file (the first line) and an output: a recording whose turn ends once, or a refusal; redacted, it stays as good."""
    meta, _, out = data.partition(b"\n")
    done = Eraser(_ERASED, _NAMES).lines(out)
    promise(done.data.count(b"\n") == out.count(b"\n"), "a redacted output has as many lines")
    promise(done.moved[len(out)] == len(done.data), "its ends of lines are told")
    for before, after in zip(out.split(b"\n"), done.data.split(b"\n"), strict=True):
        if is_json(before):
            promise(is_json(after), "what was JSON still is")
        promise(SECRET.encode() not in after, "a secret that stands there as it is goes")
    try:
        read = parse_recording(done.data, meta, name="x.jsonl", kind="claude")
    except UsageError as error:
        promise(error.message.startswith("cannot ") and bool(error.hint), "an error says what cannot be done")
        return
    told = [event for played in play(read, ClaudeAdapter()) for event in played.events]
    promise(told[-1].type == "turn_completed", "a turn has an end")


_NEW = "77b077be-1c1d-4d8b-9a3e-0d6c5b0f9a11"
_TURNS = [
    TurnTrace("t1", 1, 3, "one", ["m1"], done=True, at=0, until=200),
    TurnTrace("t2", 2, 8, "/compact", done=True, at=200),
]


def transcript(data: bytes, salt: int) -> None:
    """A CLI's transcript gives a fork of whole lines, each of them JSON under the new id, or an error that says why not."""
    ClaudePresence().read("7.json", data)
    ClaudePresence().opened(data.split(b"\n"))
    lines = data.splitlines(keepends=True)
    try:
        plan = ClaudeFork().plan(lines, _TURNS, _TURNS[salt % 2].turn_id, whole=salt % 3 == 0)
    except UsageError as error:
        promise(error.kind == "turn_not_found" and "cannot" in error.message, "an error says what cannot be done")
        return
    at = 0
    for start, end in plan.parts:
        promise(at <= start < end, "the parts are in order")
        at = end
        line = data[start:end]
        promise(line.endswith(b"\n") and is_json(line), "a part is a whole line")
        promise(is_json(ClaudeFork().copy(line, _NEW)), "what is written is JSON")


def is_json(line: bytes) -> bool:
    try:
        json.loads(line.decode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        return False
    return True


@cache
def _scratch() -> str:
    """One file of this process's own, without a name in any directory."""
    fd = os.memfd_create("config") if hasattr(os, "memfd_create") else tempfile.mkstemp()[0]
    return f"/proc/self/fd/{fd}"


TARGETS: dict[str, Target] = {
    "decoder": decoder, "framer": framer, "wire": wire, "client": client, "journal": journal, "lists": lists, "config": config,
    "recording": recording, "transcript": transcript, "pages": pages, "gateway": gateway,
}  # fmt: skip
