"""Recordings: the output of one CLI process, with all facts that its decoder needs to give the same events. Pure.

`<name>.jsonl` holds stdout byte for byte, `<name>.meta.json` the rest; docs/how-to/recordings.md describes every key.
"""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, NamedTuple

from msgspec.structs import asdict
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from clisup.backends.base import (
    END_OF_INPUT,
    Adapter,
    Background,
    Carried,
    Decoded,
    Decoder,
    LaunchRequest,
    RunEnd,
    background_of,
)
from clisup.errors import ClisupError, UsageError
from clisup.model.events import EventBase, SessionInit, TurnCompleted, TurnError
from clisup.model.lines.framing import Line, LineFramer
from clisup.model.structs import wrong_field
from clisup.model.usage import NO_USAGE
from clisup.model.verdict import ExitRecord, Terminal, begins_turn, conclude, sum_of

__all__ = ["FORMAT", "Meta", "Played", "TurnRecording", "dialogue", "parse_recording", "play", "signal_name", "told"]

FORMAT = 1
"""Version of the meta file. clisup refuses recordings of a later format."""

_CWD = "/scratch/cwd"
_LAUNCH: TypeAdapter[LaunchRequest] = TypeAdapter(LaunchRequest)
_CARRIED: TypeAdapter[Carried] = TypeAdapter(Carried)
_LAUNCH_KEYS = {field.name for field in dataclasses.fields(LaunchRequest)} - {"command"}
_CARRIED_KEYS = {field.name for field in dataclasses.fields(Carried)}


Offset = Annotated[int, Field(ge=0)]
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Ending(BaseModel):
    """Reason why the daemon ended the run, in the form for `conclude`."""

    model_config = ConfigDict(frozen=True, extra="allow")

    reason: str
    limit_s: Seconds | None = None
    error: TurnError | None = None


class Meta(BaseModel):
    """Keys of a meta file that clisup reads. A recorder may add others for people."""

    model_config = ConfigDict(frozen=True, extra="allow")

    format: int = FORMAT
    kind: str | None = None
    cli_version: str = "unknown"
    argv: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    prompt: str | None = None
    exit_code: int | None = None
    signal: str | int | None = None
    stderr: str = ""
    launch: dict[str, Any] = {}
    carried: dict[str, Any] = {}
    ending: Ending | None = None
    reason: str = "exit"
    outcome: str | None = None
    duration_s: Seconds | None = None
    timing: tuple[tuple[Offset, Seconds], ...] = ()
    said: tuple[tuple[Offset, Offset | None], ...] = ()
    stdin: tuple[tuple[Offset, str | None], ...] = ()


@dataclasses.dataclass(frozen=True)
class TurnRecording:
    """Loaded recording. `request` and `carried` are the facts of the launch."""

    kind: str
    data: bytes
    meta: Meta
    request: LaunchRequest
    carried: Carried

    @property
    def exit(self) -> ExitRecord:
        """End of the process."""
        return ExitRecord(self.meta.exit_code, signal_number(self.meta.signal), self.meta.reason)

    def run_end(self, adapter: Adapter) -> RunEnd:
        """Return the end of the process, in the form for `Adapter.explain_exit`."""
        return adapter.run_end(self.meta.exit_code, signal_number(self.meta.signal), self.meta.stderr)

    def lines(self) -> list[Line]:
        """Lines of stdout. The last line may be incomplete."""
        framer = LineFramer()
        lines = framer.feed(self.data)
        last = framer.close()
        return [*lines, last] if last else lines


class Played(NamedTuple):
    """Line with its result. `ended` is the end of the turn before, if the line begins another turn.

    The last step has no line, and holds the end of the last turn. The step before has none either if the CLI ended without a
    round trip behind its answer.
    """

    line: Line | None
    decoded: Decoded
    ended: TurnCompleted | None = None

    @property
    def events(self) -> list[EventBase]:
        """Events in their order, including the end of a turn."""
        return [*([self.ended] if self.ended else []), *self.decoded.events]


def play(recording: TurnRecording, adapter: Adapter) -> Iterator[Played]:
    """Decode a recording as the daemon does. Blank lines give nothing. A turn that the CLI begins by itself is a new turn."""
    carried, request = recording.carried, recording.request
    decoder = adapter.decoder(carried, request)
    words: list[Terminal] = []
    over = False
    for line in recording.lines():
        if not line.data.strip() and not line.oversize:
            yield Played(line, Decoded(()))
            continue
        decoded, ended = decoder.decode(line), None
        if words and begins_turn(decoded.events) and (over or _takes_prompt(decoder, decoded, request)):
            last = sum_of(words)
            ended = _end(last, ExitRecord(reason="exit"), None, TurnError(kind="crashed", message=""), None)
            carried = _after(carried, last, decoder.background)
            decoder, words, over = adapter.decoder(carried, request), [], False
            decoded = decoder.decode(line)
        words += [decoded.terminal] if decoded.terminal else []
        if words and request.live and (decoder.idle or not decoder.ends_when_idle):
            over = True
        yield Played(line, decoded, ended)
    if (settled := decoder.settle()) is not None:
        words += [settled.terminal] if settled.terminal else []
        yield Played(None, settled)
    terminal = sum_of(words) if words else None
    meta, explained = recording.meta, adapter.explain_exit(recording.run_end(adapter))
    ending = meta.ending.model_dump(mode="json", exclude_none=True) if meta.ending else None
    yield Played(None, Decoded(()), _end(terminal, recording.exit, ending, explained, meta.duration_s))


def _takes_prompt(decoder: Decoder, decoded: Decoded, request: LaunchRequest) -> bool:
    """Tell whether a live CLI begins the turn of another prompt, while background work of the turn before goes on."""
    return request.live and bool(decoder.prompts) and any(isinstance(event, SessionInit) for event in decoded.events)


def _end(
    terminal: Terminal | None,
    record: ExitRecord,
    ending: dict[str, Any] | None,
    explained: TurnError,
    duration_s: float | None,
) -> TurnCompleted:
    return conclude(terminal=terminal, record=record, ending=ending, explained=explained, duration_s=duration_s)


def _after(carried: Carried, terminal: Terminal, background: Background) -> Carried:
    cost = carried.cost_usd if terminal.cost_total_usd is None else terminal.cost_total_usd
    usage = carried.usage if terminal.usage_total is None else terminal.usage_total
    return Carried(cost_usd=cost, usage=usage, background=background)


def told(recording: TurnRecording, adapter: Adapter) -> list[EventBase]:
    """Return all events of a recording, including the ends of turns."""
    return [event for played in play(recording, adapter) for event in played.events]


def dialogue(recording: TurnRecording, adapter: Adapter) -> list[tuple[int, int | None]]:
    """Return stdin of the CLI as pairs: an offset in stdout, and the lines of stdin up to there (None: end of stdin).

    The lines are those of the launch and of the decoder's replies. The result is empty if the adapter refuses the request.
    """
    try:
        spec = adapter.launch(recording.request)
    except ClisupError:
        return []
    if spec.stdin_eof:
        return [(0, None)]
    count = spec.stdin.count("\n")
    said: list[tuple[int, int | None]] = [(0, count)]
    for played in play(recording, adapter):
        if played.line is not None and played.decoded.replies:
            count += sum(reply.count("\n") for reply in played.decoded.replies if isinstance(reply, str))
            said.append((played.line.end, None if END_OF_INPUT in played.decoded.replies else count))
    return said


def parse_recording(data: bytes, meta: bytes, *, name: str, kind: str | None = None) -> TurnRecording:
    """Load a recording from its two files. `kind` is the default for a meta file without a kind.

    Raises `UsageError`: not a recording (`usage`), or a later format (`unsupported`).
    """
    fields = _read_meta(meta, name)
    kind = fields.kind or kind
    if kind is None:
        raise _foreign(name, "it names no kind of backend", hint="give it: --kind claude")
    launch = {"native_session_id": None, "resume": False, "cwd": _CWD, "prompt": fields.prompt or "", **fields.launch}
    carried = {"cost_usd": 0.0, "usage": asdict(NO_USAGE), **fields.carried}
    _check_keys("launch", fields.launch, _LAUNCH_KEYS, name)
    carried["background"] = background_of(carried.get("background"))
    _check_keys("carried", fields.carried, _CARRIED_KEYS, name)
    try:
        request = _LAUNCH.validate_python({**launch, "command": ("cli",)})
        return TurnRecording(kind, data, fields, request, _CARRIED.validate_python(carried))
    except ValidationError as error:
        raise _foreign(name, _first(error)) from None


def _read_meta(meta: bytes, name: str) -> Meta:
    try:
        raw = json.loads(meta)
    except (ValueError, RecursionError) as error:
        raise _foreign(name, f"its meta file is no JSON: {type(error).__name__}") from None
    if not isinstance(raw, dict):
        raise _foreign(name, "its meta file holds no object")
    version = raw.get("format", FORMAT)
    if isinstance(version, int) and version > FORMAT:
        raise UsageError(
            f"cannot read the recording {name}, because a newer clisup made it (format {version})",
            kind="unsupported",
            hint="use that version",
        )
    try:
        fields = Meta.model_validate(raw)
        signal_number(fields.signal)
    except ValidationError as error:
        raise _foreign(name, _first(error)) from None
    except (KeyError, ValueError):
        raise _foreign(name, f"'signal' is wrong: {str(raw['signal'])[:40]!r} is no signal") from None
    return fields


def _check_keys(table: str, given: Mapping[str, Any], known: set[str], name: str) -> None:
    if unknown := sorted(set(given) - known):
        raise _foreign(name, f"'{table}.{unknown[0][:40]}' is no key that this clisup knows")


def _first(error: ValidationError) -> str:
    where, reason = wrong_field(error)
    return f"'{where}' is wrong: {reason}"


def _foreign(name: str, reason: str, hint: str = "docs/how-to/recordings.md describes the format") -> UsageError:
    return UsageError(f"cannot read the recording {name}, because {reason}", kind="usage", hint=hint)


def signal_number(name: str | int | None) -> int | None:
    """Return 15 for SIGTERM and for 15. Raises `KeyError` or `ValueError` for no signal."""
    if name is None:
        return None
    return int(signal.Signals(name) if isinstance(name, int) else signal.Signals[name])


def signal_name(number: int | None) -> str | None:
    """Return SIGTERM for 15. A real-time signal without a name becomes the first one."""
    if number is None:
        return None
    names = {int(member): member.name for member in signal.Signals}
    return names.get(number, "SIGRTMIN")
