"""Taking a turn out of a state directory as a recording: read-only, whether a daemon runs there or not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import asdict

from clisup.backends.recording import FORMAT, dialogue, parse_recording, signal_name, told
from clisup.backends.registry import adapter_name, get_adapter
from clisup.config.model import Config
from clisup.config.session_spec import SessionSpec
from clisup.daemon.backends import Backend, Backends
from clisup.errors import UsageError, WorldError
from clisup.model.events import EventBase
from clisup.model.sessions.turn_facts import TurnBook, TurnFacts, seconds_between
from clisup.model.usage import NO_USAGE
from clisup.model.verdict import exit_from_file
from clisup.policy.secrets.erasing import Eraser, machine_names
from clisup.policy.secrets.redact import MIN_LENGTH
from clisup.recordings.files import LARGEST
from clisup.store.session_dir import RunDir, SessionDir, list_sessions
from clisup.store.spool import ends_text, read_range, spool_size
from clisup.store.stored_records import stored_records

__all__ = ["Machine", "Taken", "Wish", "find_session", "take"]

SHORTEST = 4


class Machine(NamedTuple):
    """What must not be found in a recording, and what the daemon's configuration says of secrets."""

    config: Config
    env: Mapping[str, str]
    home: str
    user: str
    host: str


@dataclass(frozen=True, slots=True)
class Wish:
    """What to record. `hidden` are more values that must not be in it; None where nobody said that these are all."""

    session: str
    turn: str | None = None
    prompt: str | None = None
    cli_version: str | None = None
    hidden: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """A recording, ready to be written. `name` is what its files are named by default, `secrets` and `names` count replacements."""

    name: str
    session_id: str
    turn_id: str
    data: bytes
    meta: dict[str, Any]
    events: list[EventBase]
    secrets: int
    names: int
    prompt_is_cut: bool


def find_session(state_dir: str, prefix: str) -> str:
    """The one session whose id begins so. Raises `UsageError(session_not_found)`, or `usage` for less than 4 characters."""
    if len(prefix) < SHORTEST:
        reason = f"cannot look for session {prefix!r}, because {SHORTEST} characters of its id are the least"
        raise UsageError(reason, kind="usage", hint="list them: clisup sessions")
    found = [name for name in list_sessions(state_dir) if name.startswith(prefix.lower())]
    if len(found) != 1:
        what = f"{len(found)} ids begin so" if found else f"none in {state_dir} begins so"
        raise UsageError(
            f"cannot tell which session {prefix!r} is, because {what}",
            kind="session_not_found",
            hint="list them: clisup sessions; --state-dir names another state directory",
        )
    return found[0]


def take(state_dir: str, wish: Wish, machine: Machine) -> Taken:
    """Take a turn. Raises `UsageError` and `WorldError` where it cannot be had, or where a value that must be hidden is unknown."""
    directory = SessionDir(state_dir, find_session(state_dir, wish.session))
    spec = directory.load_spec()
    if spec is None:
        raise _lost(directory.id, "its session.json is gone")
    facts = _facts(directory, wish.turn)
    backend = Backends(machine.config, machine.env).get(spec.backend)
    secrets = directory.secrets()
    if wish.hidden is None:
        _check_known(backend, facts, spec, secrets)
    _check_hidden(wish.hidden or ())
    hidden = [*secrets.values(), *directory.brought_secrets(spec), *(wish.hidden or ())]
    names = machine_names(home=machine.home, user=machine.user, host=machine.host, state_dir=state_dir)
    eraser = Eraser(backend.redactor(hidden), names)
    run = directory.run(facts.run)
    erased = eraser.lines(_stdout(directory.id, run, facts))
    meta = eraser.value(_meta(wish, spec, backend, facts, run))
    meta["timing"] = [[erased.moved[end], at] for end, at in facts.timing if end in erased.moved]
    recording = parse_recording(erased.data, _encoded(meta), name=directory.id)
    adapter = get_adapter(recording.kind)
    meta["said"] = dialogue(recording, adapter)
    meta["redacted"] = {"secrets": eraser.secrets, "names": eraser.names}
    return Taken(
        name=f"{spec.backend}-{recording.meta.cli_version}-{facts.id}".replace("/", "-"),
        session_id=directory.id,
        turn_id=facts.id,
        data=erased.data,
        meta=meta,
        events=told(recording, adapter),
        secrets=eraser.secrets,
        names=eraser.names,
        prompt_is_cut=wish.prompt is None and _is_cut(facts),
    )


def _facts(directory: SessionDir, wanted: str | None) -> TurnFacts:
    book = TurnBook(wanted)
    for record in stored_records(directory.journal):
        book.take(record)
    if book.found is not None:
        return book.found
    turn = wanted or "a turn"
    if wanted is not None and wanted not in book.seen:
        reason = f"session {directory.id} has no such turn, or retention has removed it"
    else:
        reason = "no turn of the session has run to its end" if wanted is None else "it has not run to its end"
    raise UsageError(
        f"cannot record {turn}, because {reason}",
        kind="turn_not_found",
        hint=f"look at its turns: clisup logs --no-deltas {directory.id[:8]}",
    )


def _check_hidden(values: tuple[str, ...]) -> None:
    if any(len(value) < MIN_LENGTH for value in values):
        raise UsageError(
            f"cannot hide a value of less than {MIN_LENGTH} characters, because it would blank out ordinary words",
            kind="usage",
            hint="take it out of the file of --hide, and look for it in the recording yourself",
        )


def _check_known(backend: Backend, facts: TurnFacts, spec: SessionSpec, secrets: Mapping[str, str]) -> None:
    """A recording is made to be shared: where the run had values that nobody here can tell, somebody has to say so."""
    brought = {*spec.env_names}
    unknown = sorted({*backend.unexplained(set(facts.env_names) - brought), *(brought - secrets.keys())})
    if unknown:
        raise UsageError(
            f"cannot hide the value of {', '.join(unknown)}, because neither this environment nor the configuration has it",
            kind="usage",
            hint="run this as the daemon was started (--config), or give secret values, one a line: --hide FILE (or /dev/null)",
        )


def _stdout(session_id: str, run: RunDir, facts: TurnFacts) -> bytes:
    begin = facts.begin["out"]
    end = facts.end["out"] if facts.end else spool_size(run.out)
    if facts.marks and end < facts.marks[-1][0]:
        raise _lost(session_id, f"the output of run {facts.run} was removed by retention")
    if end - begin > LARGEST:
        raise UsageError(
            f"cannot record turn {facts.id}, because its output has {end - begin} bytes and {LARGEST} are the most",
            kind="limit_exceeded",
            hint="record a smaller turn",
        )
    return read_range(run.out, begin, max(0, end - begin))


def _stderr(run: RunDir, facts: TurnFacts) -> str:
    """As much of it as an adapter explains an exit by."""
    end = facts.end["err"] if facts.end else spool_size(run.err)
    return ends_text(run.err, facts.begin["err"], end)


def _lost(session_id: str, reason: str) -> WorldError:
    return WorldError(
        f"cannot record a turn of session {session_id}, because {reason}",
        kind="storage_failed",
        hint="record it sooner, or keep more: daemon.retention",
    )


def _is_cut(facts: TurnFacts) -> bool:
    return len((facts.prompt_preview or "").encode()) < (facts.prompt_bytes or 0)


def _meta(wish: Wish, spec: SessionSpec, backend: Backend, facts: TurnFacts, run: RunDir) -> dict[str, Any]:
    """Everything but what depends on the redacted output."""
    # A turn that another one followed in the same process has seen no exit.
    end = exit_from_file(run.exit_record() if facts.end is None else {"reason": "exit", "exit_code": 0})
    completed = facts.completed or {}
    native = run.intent().get("native") or [None, False]
    prompt = wish.prompt if wish.prompt is not None else facts.prompt_preview
    ended = facts.exited["ts"] if facts.exited and facts.end is None else completed.get("ts", facts.began)
    return {
        "format": FORMAT,
        "kind": adapter_name(backend.config.kind, backend.config.mode),
        "backend": spec.backend,
        "cli_version": wish.cli_version or facts.version or "unknown",
        "argv": facts.argv,
        "environment": sorted(facts.env_names),
        "prompt": prompt,
        "prompt_bytes": facts.prompt_bytes if wish.prompt is None else len(wish.prompt.encode()),
        "exit_code": end.exit_code,
        "signal": signal_name(end.signal),
        "reason": end.reason,
        "ending": facts.ending,
        "stderr": _stderr(run, facts),
        "launch": {
            "native_session_id": native[0],
            "resume": bool(native[1]),
            "cwd": spec.cwd,
            "model": spec.model,
            "permission_mode": spec.permission_mode,
            "setting_sources": backend.config.setting_sources,
            "prompt": prompt or "",
        },
        "carried": _carried(spec, facts),
        "outcome": completed.get("outcome"),
        "duration_s": seconds_between(facts.began, ended),
    }


def _carried(spec: SessionSpec, facts: TurnFacts) -> dict[str, Any]:
    """As `TurnRunner.carried` has it: a session taken over from elsewhere has totals that nobody told."""
    fresh = spec.resume_native_id is None
    cost = facts.cost_total_usd if facts.cost_total_usd is not None else (0.0 if fresh else None)
    usage = asdict(NO_USAGE) if fresh else None
    return {
        "cost_usd": cost,
        "usage": facts.usage_total if facts.usage_total is not None else usage,
        "background": facts.background,
    }


def _encoded(meta: dict[str, Any]) -> bytes:
    return json.dumps(meta, ensure_ascii=False).encode("utf-8", "surrogatepass")
