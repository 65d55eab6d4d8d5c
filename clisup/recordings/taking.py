"""Take a turn out of a state directory as a recording. The directory is only read, with or without a running daemon."""

from __future__ import annotations

import json
import os
import pwd
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from msgspec.structs import asdict

from clisup.backends.recording import FORMAT, dialogue, parse_recording, signal_name, told
from clisup.backends.registry import adapter_name, get_adapter
from clisup.config.model import Config
from clisup.config.session_spec import SessionSpec
from clisup.daemon.backends import Backend, Backends
from clisup.daemon.start import Flags, config_path, place_of
from clisup.errors import UsageError, WorldError
from clisup.host.config_file import ConfigFile, with_credentials
from clisup.model.events import EventBase
from clisup.model.sessions.turn_facts import TurnBook, TurnFacts, seconds_between
from clisup.model.usage import NO_USAGE
from clisup.model.verdict import exit_from_file
from clisup.policy.secrets.erasing import Eraser, machine_names
from clisup.policy.secrets.redact import MIN_LENGTH
from clisup.recordings.files import LARGEST
from clisup.store.offline import stored_records
from clisup.store.session_dir import RunDir, SessionDir, list_sessions
from clisup.store.spool import ends_text, read_range, spool_size

__all__ = [
    "Machine", "RecordingRequest", "TakenRecording", "find_session", "state_dir_of", "take", "this_machine",
]  # fmt: skip

_SHORTEST = 4


class Machine(NamedTuple):
    """The daemon's configuration, and names that must not appear in a recording."""

    config: Config
    env: Mapping[str, str]
    home: str
    user: str
    host: str


@dataclass(frozen=True, slots=True)
class RecordingRequest:
    """Turn to record. `hidden` are more secret values; None leaves it to `take` to refuse unknown ones."""

    session: str
    turn: str | None = None
    prompt: str | None = None
    cli_version: str | None = None
    hidden: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class TakenRecording:
    """Recording before it is written. `name` is the default name of its files; `secrets` and `names` count replacements."""

    name: str
    session_id: str
    turn_id: str
    data: bytes
    meta: dict[str, Any]
    events: list[EventBase]
    secrets: int
    names: int
    prompt_is_cut: bool


def this_machine(env: Mapping[str, str], config: str | None) -> Machine:
    """Return this machine, with the configuration of `clisup serve`. Raises `ConfigurationError`."""
    settings = with_credentials(ConfigFile(*config_path(Flags(config=config), env)).read(), None, env)
    try:
        user = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a uid without a name, as in a container
        user = ""
    return Machine(settings, env, env.get("HOME", ""), user, socket.gethostname())


def state_dir_of(env: Mapping[str, str], config: Config) -> str:
    """Return the state directory of a daemon without flags."""
    return place_of(Flags(), config.daemon.socket, config.daemon.state_dir, env).state_dir


def find_session(state_dir: str, prefix: str) -> str:
    """Return the id of the only session with this prefix. Raises `UsageError(session_not_found)`, or `usage` for a short prefix."""
    if len(prefix) < _SHORTEST:
        reason = f"session id {prefix!r} is too short: give at least {_SHORTEST} characters"
        raise UsageError(reason, kind="usage", hint="list them: clisup sessions")
    found = [name for name in list_sessions(state_dir) if name.startswith(prefix.lower())]
    if len(found) != 1:
        matches = f"{len(found)} sessions match" if found else f"no session in {state_dir} matches"
        raise UsageError(
            f"{matches} {prefix!r}",
            kind="session_not_found",
            hint="list them: clisup sessions; --state-dir names another state directory",
        )
    return found[0]


def take(state_dir: str, request: RecordingRequest, machine: Machine) -> TakenRecording:
    """Take a turn. Raises `UsageError` or `WorldError` if the turn is not there, or if a secret value is unknown."""
    directory = SessionDir(state_dir, find_session(state_dir, request.session))
    opened = directory.opened()
    if opened is None:
        raise _lost(directory.id, "its session.json is gone")
    spec = opened.spec
    facts = _facts(directory, request.turn)
    backend = Backends(machine.config, machine.env).get(spec.backend)
    secrets = directory.secrets()
    if request.hidden is None:
        _check_known(backend, facts, spec, secrets)
    _check_hidden(request.hidden or ())
    hidden = [*secrets.values(), *directory.brought_secrets(spec), *(request.hidden or ())]
    names = machine_names(home=machine.home, user=machine.user, host=machine.host, state_dir=state_dir)
    eraser = Eraser(backend.redactor(hidden), names)
    run = directory.run(facts.run)
    erased = eraser.lines(_stdout(directory.id, run, facts))
    meta = eraser.value(_meta(request, spec, backend, facts, run))
    meta["timing"] = [[erased.moved[end], at] for end, at in facts.timing if end in erased.moved]
    recording = parse_recording(erased.data, _encoded(meta), name=directory.id)
    adapter = get_adapter(recording.kind)
    meta["said"] = dialogue(recording, adapter)
    meta["redacted"] = {"secrets": eraser.secrets, "names": eraser.names}
    return TakenRecording(
        name=f"{spec.backend}-{recording.meta.cli_version}-{facts.id}".replace("/", "-"),
        session_id=directory.id,
        turn_id=facts.id,
        data=erased.data,
        meta=meta,
        events=told(recording, adapter),
        secrets=eraser.secrets,
        names=eraser.names,
        prompt_is_cut=request.prompt is None and len((facts.prompt_preview or "").encode()) < (facts.prompt_bytes or 0),
    )


def _facts(directory: SessionDir, wanted: str | None) -> TurnFacts:
    book = TurnBook(wanted)
    for record in stored_records(directory.journal):
        book.apply(record)
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
            f"a value to hide is too short: less than {MIN_LENGTH} characters would blank out ordinary words",
            kind="usage",
            hint="remove the value from the file of --hide, and look for it in the recording yourself",
        )


def _check_known(backend: Backend, facts: TurnFacts, spec: SessionSpec, secrets: Mapping[str, str]) -> None:
    """Refuse values that cannot be hidden because they are unknown here: a recording is made to be shared."""
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
    """Return as much of stderr as an adapter needs to explain an exit."""
    end = facts.end["err"] if facts.end else spool_size(run.err)
    return ends_text(run.err, facts.begin["err"], end)


def _lost(session_id: str, reason: str) -> WorldError:
    return WorldError(
        f"cannot record a turn of session {session_id}, because {reason}",
        kind="storage_failed",
        hint="record it sooner, or keep more: daemon.retention",
    )


def _meta(
    request: RecordingRequest, spec: SessionSpec, backend: Backend, facts: TurnFacts, run: RunDir
) -> dict[str, Any]:
    """Return the meta file without the keys that depend on the redacted output."""
    # A turn with another one behind it in the same process has no exit.
    end = exit_from_file(run.exit_record() if facts.end is None else {"reason": "exit", "exit_code": 0})
    completed = facts.completed or {}
    native = run.intent().get("native") or [None, False]
    prompt = request.prompt if request.prompt is not None else facts.prompt_preview
    ended = facts.exited["ts"] if facts.exited and facts.end is None else completed.get("ts", facts.began)
    return {
        "format": FORMAT,
        "kind": adapter_name(backend.config.kind, backend.config.mode),
        "backend": spec.backend,
        "cli_version": request.cli_version or facts.version or "unknown",
        "argv": facts.argv,
        "environment": sorted(facts.env_names),
        "prompt": prompt,
        "prompt_bytes": facts.prompt_bytes if request.prompt is None else len(request.prompt.encode()),
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
    """Return the totals before the turn. Those of a session that another program began are unknown."""
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
