"""The comparison. Pure: bytes and dicts in, counts out.

*Lost*: a seq, an event, a turn or a prompt that should be there is not. *Doubled*: one is there twice. *Reordered*: all are
there, in another order. *Wrong exits*: a turn or its process ended otherwise than its script says. A seq that holds other
bytes at one client than at another has lost one event and put another in its place: it counts as lost.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tests.chaos.scripts import Exit, Script

__all__ = ["Counts", "Turn", "against", "heard", "same_bytes", "same_events", "turns_of", "witnessed"]

Event = dict[str, Any]
DETAILS = 200

LEFT_OUT = {
    "seq": "counts the daemon's own notices too, and those tell of restarts",
    "ts": "the time",
    "session_id": "an id",
    "turn_id": "an id",
    "native_session_id": "an id",
    "approval_id": "an id, with the run's number",
    "cwd": "each session has a directory of its own",
    "blob": "a name made of a run's number and offsets; what it holds is compared",
}
"""The fields in which an event may differ from that of the undisturbed run."""
LEFT_OUT_OF_ENDS = {**LEFT_OUT, "duration_s": "a time"}

_RUN_DEPENDENT = (
    (re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "ID"),  # in the excerpt of a line that is no event
    (re.compile(r"/\S+/runs/\d+/"), "RUN/"),  # where the rest of a flood on stderr is
    (re.compile(r"/tmp/cs\w{8}/"), "ROOT/"),  # in what a CLI tells of its directories
    (re.compile(r"20\d\d-\d\d-\d\dT[\d:.]+Z|(?<=Wall time: )[\d.]+"), "TIME"),  # in a CLI's log, in its words on a tool
)
_RACE = re.compile(
    "failed to record rollout items: thread ID not found|state db backfill is running|error=tool call cancelled"
)
"""What codex 0.169.0 writes to stderr now and then: as an interrupted turn ends, and where two start in a new home."""


@dataclass
class Counts:
    """What was found. All zero, or the run has failed."""

    lost: int = 0
    doubled: int = 0
    reordered: int = 0
    wrong_exits: int = 0
    details: list[str] = field(default_factory=list)

    def add(self, name: str, number: int, detail: str) -> None:
        """Count `number` of them, with a word on where."""
        if number:
            setattr(self, name, getattr(self, name) + number)
            self.details = [*self.details, f"{name} {number}: {detail}"][:DETAILS]

    def __iadd__(self, other: Counts) -> Self:
        for name in ("lost", "doubled", "reordered", "wrong_exits"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.details = [*self.details, *other.details][:DETAILS]
        return self

    @property
    def clean(self) -> bool:
        return not (self.lost or self.doubled or self.reordered or self.wrong_exits)


# -- what clients heard ------------------------------------------------------------------------------------------------


def heard(who: str, seqs: Iterable[int], last: int) -> Counts:
    """Each of 1 to `last` once and in order."""
    counts, highest = Counts(), 0
    missing: set[int] = set()
    for seq in seqs:
        if seq > highest:
            missing |= set(range(highest + 1, seq))
            highest = seq
        elif seq in missing:
            missing.remove(seq)
            counts.add("reordered", 1, f"{who} heard seq {seq} after {highest}")
        else:
            counts.add("doubled", 1, f"{who} heard seq {seq} again")
    missing |= set(range(highest + 1, last + 1))
    counts.add("lost", len(missing), f"{who} never heard {sorted(missing)[:8]} of {last}")
    counts.add("doubled", max(0, highest - last), f"{who} heard up to seq {highest}, but the log ends at {last}")
    return counts


def same_bytes(who: str, one: Mapping[int, bytes], log: Mapping[int, bytes]) -> Counts:
    """Where both have a seq, its bytes are the same."""
    counts = Counts()
    for seq in sorted(one.keys() & log.keys()):
        if one[seq] != log[seq]:
            counts.add("lost", 1, f"seq {seq} is {one[seq][:120]!r} at {who}, and {log[seq][:120]!r} in the log")
    return counts


def same_events(who: str, pages: Sequence[Event], log: Mapping[int, bytes]) -> Counts:
    """`session/events` gives what the log holds."""
    counts = heard(who, [event["seq"] for event in pages], max(log, default=0))
    wrong = [event["seq"] for event in pages if event["seq"] in log and event != json.loads(log[event["seq"]])]
    counts.add("lost", len(wrong), f"{who} has other events at {wrong[:8]}")
    return counts


# -- turns -------------------------------------------------------------------------------------------------------------


@dataclass
class Turn:
    """One turn of a log: what the CLI said on both streams, and what the daemon said of its life."""

    out: list[str] = field(default_factory=list)
    err: list[str] = field(default_factory=list)
    life: list[Event] = field(default_factory=list)  # accepted, started, process started and exited, completed
    rest_out: list[str] = field(default_factory=list)  # the same of the time after it, when a live process has no turn
    rest_life: list[Event] = field(default_factory=list)

    def of(self, type_: str, *, rest: bool = False) -> list[Event]:
        """Its events of this type; with `rest` those of the time after it, too."""
        return [event for event in (*self.life, *(self.rest_life if rest else ())) if event["type"] == type_]

    @property
    def answers(self) -> list[str]:
        """What was decided on the tool calls that asked."""
        names = ("tool_name", "decision", "by", "message")
        return [str([event.get(name) for name in names]) for event in self.of("approval_resolved")]

    @property
    def ends(self) -> list[str]:
        """Its ends, as far as they come from what the CLI said."""
        return [_plain(event, LEFT_OUT_OF_ENDS) for event in self.of("turn_completed")]


_PROCESS = ("process_started", "process_exited")
_LIFE = ("prompt_accepted", "turn_started", *_PROCESS, "approval_resolved", "turn_completed")


def turns_of(events: Iterable[Event], blobs: Mapping[str, str]) -> list[Turn]:
    """The turns of one session in the order of their ids. `blobs` gives what stands for the contents of each blob."""
    turns: dict[str, Turn] = {}
    running = Turn()
    for event in events:
        if "blob" in event or "blocks" in event:
            event = _with_contents(event, blobs)
        if not (turn_id := event.get("turn_id")):
            _at_rest(running, event)
            continue
        turn = turns.setdefault(turn_id, Turn())
        if event["type"] == "turn_started":
            running = turn
        if event["type"] in _LIFE:
            turn.life.append(event)
        elif event["source"] == "backend" and not _RACE.search(event.get("text", "")):
            (turn.err if event["type"] == "stderr" else turn.out).append(_plain(event, LEFT_OUT))
    return [turns[id_] for id_ in sorted(turns, key=lambda id_: int(id_[1:]))]


def _at_rest(turn: Turn, event: Event) -> None:
    """What comes between two turns belongs to the rest after the first."""
    if event["type"] in _PROCESS:
        turn.rest_life.append(event)
    elif event["source"] == "backend" and not _RACE.search(event.get("text", "")):
        (turn.err if event["type"] == "stderr" else turn.rest_out).append(_plain(event, LEFT_OUT))


def _with_contents(event: Event, blobs: Mapping[str, str]) -> Event:
    event = {**event, "contents": blobs.get(event.get("blob", ""))}
    if event.get("blocks"):
        event["blocks"] = [
            {**{k: v for k, v in block.items() if k != "blob"}, "contents": blobs.get(block.get("blob", ""))}
            for block in event["blocks"]
        ]
    return event


def _plain(event: Event, left_out: Mapping[str, str]) -> str:
    text = json.dumps({name: value for name, value in event.items() if name not in left_out}, sort_keys=True)
    for pattern, stands_for in _RUN_DEPENDENT:
        text = pattern.sub(stands_for, text)
    return text


def against(where: str, got: Sequence[Turn], want: Sequence[Turn], scripts: Sequence[Script]) -> Counts:
    """A session's turns against those of the undisturbed run, and their exits against the scripts."""
    counts = Counts()
    want = want[: sum(script.turns for script in scripts)]
    counts.add("lost", max(0, len(want) - len(got)), f"{where}: {len(got)} of {len(want)} turns")
    counts.add("doubled", max(0, len(got) - len(want)), f"{where}: {len(got)} instead of {len(want)} turns")
    for number, (turn, model) in enumerate(zip(got, want, strict=False), 1):
        counts += _same_turn(f"{where} t{number}", turn, model)
    # A line of stderr that comes with the end of a turn may be told in it, after it, or in the next one.
    counts += _same_list(
        f"{where} stderr", [text for t in got for text in t.err], [text for t in want for text in t.err]
    )
    first = 0
    for script in scripts:
        group = got[first : first + script.turns]
        first += script.turns
        closed = first == len(want) and script.exit is None
        counts += _right_exit(f"{where} t{first}", group, script, script.at_close if closed else script.exit)
    return counts


def _same_turn(where: str, turn: Turn, model: Turn) -> Counts:
    counts = _same_list(f"{where} stdout", turn.out, model.out)
    counts += _same_list(f"{where} after it", turn.rest_out, model.rest_out)
    counts += _same_list(f"{where} approvals", turn.answers, model.answers)
    for type_ in _LIFE:
        more = len(turn.of(type_)) - len(model.of(type_))
        counts.add("doubled" if more > 0 else "lost", abs(more), f"{where}: {len(turn.of(type_))} {type_}")
    if turn.ends and model.ends and turn.ends[0] != model.ends[0]:
        counts.add("wrong_exits", 1, f"{where} ended as {turn.ends[0][:500]} instead of {model.ends[0][:500]}")
    return counts


def _same_list(where: str, got: list[str], want: list[str]) -> Counts:
    counts = Counts()
    if got == want:
        return counts
    have, need = Counter(got), Counter(want)
    gone, extra = need - have, have - need
    counts.add("lost", gone.total(), f"{where}: {[text[:160] for text in gone][:3]}")
    counts.add("doubled", extra.total(), f"{where}: {[text[:160] for text in extra][:3]}")
    if not gone and not extra:
        at = next(n for n, pair in enumerate(zip(got, want, strict=True)) if pair[0] != pair[1])
        counts.add("reordered", 1, f"{where}: from its event {at} on, {got[at][:160]}")
    return counts


def _right_exit(where: str, turns: Sequence[Turn], script: Script, exit_: Exit | None) -> Counts:
    """The process of the prompt and its follow-ups ended as the script says, or lives on; and so did the turn."""
    counts = Counts()
    ends = [event for turn in turns for event in turn.of("process_exited", rest=True)]
    exits = [Exit(event.get("exit_code"), event.get("signal")) for event in ends]
    outcomes = [event["outcome"] for turn in turns[:1] for event in turn.of("turn_completed")]
    if turns and exits != ([] if exit_ is None else [exit_]):
        counts.add("wrong_exits", 1, f"{where}: {exits} instead of {exit_}")
    if turns and outcomes != [script.outcome]:
        counts.add("wrong_exits", 1, f"{where}: {outcomes} instead of {script.outcome}")
    return counts


def witnessed(where: str, found: Mapping[int, str], prompts: int) -> Counts:
    """Each prompt ran once: `found` is what the turns wrote, by their numbers."""
    counts = Counts()
    for number in range(prompts):
        times = found.get(number, "").split().count(str(number))
        counts.add("lost" if times < 1 else "doubled", abs(times - 1), f"{where}: prompt {number} ran {times} times")
    return counts
