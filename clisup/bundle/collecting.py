"""What goes into a bundle, and from where: the daemon where one answers, else this process in its place."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from clisup import __version__
from clisup.bundle.archive import Archive
from clisup.bundle.sessions import add_session
from clisup.client.sync import Client
from clisup.config.model import Config, parse_config
from clisup.daemon.backends import Backends
from clisup.daemon.ops.offline import examine
from clisup.daemon.start import Flags, config_path, place_of
from clisup.errors import ClisupError
from clisup.host import clock
from clisup.host.config_file import read_config
from clisup.host.systemd.journal import journal_tail
from clisup.policy.secrets.redact import Redactor, redacted, secret_arguments
from clisup.recordings.taking import find_session
from clisup.store.session_dir import SessionDir, list_sessions
from clisup.store.state_listing import state_listing

__all__ = ["Wish", "collect"]

MAX_LOG_LINES = 1000
_LIBRARIES = ("pydantic", "trio", "structlog", "psutil", "click", "msgspec")
_README = """\
A debug bundle of clisup {version}, made {time} by: clisup debug bundle

LOOK AT IT BEFORE YOU SEND IT. Known secrets (values of the configuration, of credentials in the environment, of what clients
brought for their sessions) and what looks like a key are replaced by [redacted]; the home directory is ~. A secret that clisup
does not know of, in a place where nobody expects one, is not found.

{content}

What is in it, with bytes:
{members}
"""
_WITHOUT = "No prompt, answer, input or output of a tool is in it: of texts there is only the length."
_WITH = "It HOLDS PROMPTS, ANSWERS AND TOOLS' INPUTS AND OUTPUTS of the sessions named: --with-content asked for them."


@dataclass
class Wish:
    """What to collect. `sessions` are ids or their first characters; `content`: with the words of their events."""

    sessions: tuple[str, ...] = ()
    content: bool = False
    config: str | None = None
    state_dir: str | None = None


@dataclass
class _Found:
    """What this machine's configuration says, and what must not be shown."""

    env: Mapping[str, str]
    config: Config
    path: str
    state_dir: str
    problem: ClisupError | None
    redactors: list[Redactor] = field(default_factory=list)

    def redact(self, text: str) -> str:
        """Without secrets, and without the home directory's name."""
        text = redacted(text, self.redactors)
        home = self.env.get("HOME", "").rstrip("/")
        return text.replace(home, "~") if home.count("/") > 1 or home == "/root" else text


def collect(wish: Wish, env: Mapping[str, str]) -> Archive:
    """Collect it all. What cannot be had is said in place of it; raises `UsageError` for a session that there is not."""
    client = _client()
    try:
        said = _told(lambda: client.call("daemon/status")) if client is not None else None
        found = _look(wish, env, said)
        now = clock.timestamp()
        archive = Archive(found.redact, folder=f"clisup-debug-{now[:10]}", time=clock.wall())
        sessions = [find_session(found.state_dir, prefix) for prefix in wish.sessions]
        archive.add_json("versions.json", _versions())
        archive.add_json("config.json", _configuration(found))
        archive.add_json("doctor.json", _told(lambda: _doctor(client, wish)))
        archive.add_json("status.json", said if said is not None else {"cannot": "no daemon answers"})
        _add_metrics(archive, client)
        _add_log(archive, client, env)
        archive.add("state.txt", state_listing(found.state_dir))
        for session_id in sessions:
            add_session(archive, found.state_dir, session_id, content=wish.content)
        archive.add("README.txt", _readme(archive, wish, now))
        return archive
    finally:
        if client is not None:
            client.close()


def _client() -> Client | None:
    try:
        return Client.connect(name="clisup-debug")
    except ClisupError:
        return None


def _told(look: Callable[[], Any]) -> Any:
    try:
        return look()
    except ClisupError as error:
        return {"cannot": error.message, "kind": error.kind}


def _look(wish: Wish, env: Mapping[str, str], said: Any) -> _Found:
    path, named = config_path(Flags(config=wish.config), env)
    config, problem = parse_config({}), None
    try:
        config = read_config(path, required=named)
    except ClisupError as error:
        problem = error
    place = place_of(Flags(state_dir=wish.state_dir), config.daemon.socket, config.daemon.state_dir, env).state_dir
    running = said.get("daemon", {}).get("state_dir") if isinstance(said, dict) else None
    state_dir = place if wish.state_dir or not running else str(running)
    found = _Found(env, config, path, os.path.abspath(state_dir), problem)
    _learn_secrets(found)
    return found


def _learn_secrets(found: _Found) -> None:
    """All that is known to be secret here, of every session: a bundle of one may name another."""
    try:
        backends = list(Backends(found.config, found.env))
    except ClisupError as error:
        found.problem, backends = found.problem or error, []
    secrets = [value.get_secret_value() for value in found.config.tracing.headers.values()]
    for table in found.config.backends.values():
        secrets += [value.get_secret_value() for value in table.env.values()]
        secrets += secret_arguments((*table.command, *table.args))
    for session_id in list_sessions(found.state_dir):
        directory = SessionDir(found.state_dir, session_id)
        for brought in (lambda d: d.secrets().values(), SessionDir.server_secrets, SessionDir.bridge_secrets):
            with suppress(ClisupError):  # what cannot be read keeps none of the others
                secrets += brought(directory)
    found.redactors = [*(backend.private() for backend in backends), Redactor(secrets)]


def _versions() -> dict[str, Any]:
    libraries: dict[str, str | None] = {}
    for name in _LIBRARIES:
        try:
            libraries[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            libraries[name] = None
    return {
        "clisup": __version__,
        "python": platform.python_version(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "system": _system(),
        "root": os.geteuid() == 0,
        "executable": sys.executable,
        "libraries": libraries,
    }


def _system() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return None


def _configuration(found: _Found) -> dict[str, Any]:
    about = {"path": found.path, "there": os.path.exists(found.path)}
    if found.problem is not None:
        return {**about, "cannot": found.problem.message, "hint": found.problem.hint}
    return {**about, **found.config.model_dump(mode="json")}  # a SecretStr has no other form than stars


def _doctor(client: Client | None, wish: Wish) -> Any:
    if client is not None:
        return client.call("backend/check")
    return examine(Flags(config=wish.config, state_dir=wish.state_dir), None, "/")


def _add_metrics(archive: Archive, client: Client | None) -> None:
    said = _told(lambda: client.call("daemon/metrics")) if client is not None else None
    if isinstance(said, dict) and isinstance(said.get("text"), str):
        archive.add("metrics.txt", said["text"])


def _add_log(archive: Archive, client: Client | None, env: Mapping[str, str]) -> None:
    """Of the daemon that runs; of one that is down only the journal can know."""
    if client is None:
        archive.add(
            "log.txt", journal_tail(env) or "no daemon answers, and the journal has no line of one\n", keep_end=True
        )
    else:
        archive.add_json("log.json", _told(lambda: client.call("daemon/log", limit=MAX_LOG_LINES)))


def _readme(archive: Archive, wish: Wish, now: str) -> str:
    members = "\n".join(f"  {m.bytes:>10}  {m.name}{'  (cut)' if m.cut else ''}" for m in archive.members)
    return _README.format(version=__version__, time=now, content=_WITH if wish.content else _WITHOUT, members=members)
