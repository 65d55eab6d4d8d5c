"""Shared state of a session's parts: the opening params, the journal, the process, the lifecycle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import trio
from msgspec.structs import replace

from clisup.backends.base import Capabilities
from clisup.daemon.backends import Backend
from clisup.daemon.journal.recorder import Item, Recorder
from clisup.daemon.metrics import Meter
from clisup.daemon.runs.run import Run
from clisup.daemon.services import Services
from clisup.errors import UsageError, WorldError
from clisup.host.locks import lock_holder
from clisup.host.log import LOG, event_logger
from clisup.model.events import Notice, TurnError
from clisup.model.lifecycle import Cause, SessionState, advance
from clisup.model.prompts.kept import KeptPrompt, kept_prompt
from clisup.model.prompts.options import StoredPrompt
from clisup.model.sessions.ledger import Ledger
from clisup.policy.watchdog import TurnTimeouts
from clisup.store.journal_store import JournalStore
from clisup.store.opened import Opened
from clisup.store.session_dir import SessionDir

__all__ = ["Notification", "SessionContext"]

_log = event_logger()


class Notification:
    """Wake the single task that checks for work, waits, and checks again.

    A `notify` between a check and the next wait ends the wait. The check sees all work from before `clear`.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = trio.Event()

    def clear(self) -> None:
        """Forget earlier notifications: a check begins."""
        self._event = trio.Event()

    def notify(self) -> None:
        """End the wait."""
        self._event.set()

    async def wait(self) -> None:
        """Wait for a notification since the last `clear`."""
        await self._event.wait()


class SessionContext:
    """Shared state of a session.

    `run` is the session's process, if any. `starting` is the turn that the session is starting, before `turn_started`.
    A `closing` session accepts no prompt. A `draining` session starts no turn. A `detached` session leaves its running
    turn to the next daemon.
    """

    def __init__(self, opened: Opened, backend: Backend, services: Services, nursery: trio.Nursery) -> None:
        spec = opened.spec
        self.id = spec.session_id
        self.spec = spec
        self.backend = backend
        self.services = services
        self.nursery = nursery
        self.dir = SessionDir(services.state_dir, self.id, opened.files)
        config = services.config.daemon
        store = JournalStore(self.dir.journal, segment_bytes=config.segment_bytes, durable=config.fsync != "none")
        self.recorder = Recorder(
            self.dir,
            store,
            services.storage,
            max_keys=config.retention.keys,
            everywhere=services.everywhere,
            at_ends=services.at_ends,
            at_notices=services.at_notices,
            meter=Meter(services.metrics, spec.backend),
            cache=services.event_cache,
        )
        self.request_env: Mapping[str, str] = self.dir.secrets() if spec.env_names else {}
        self.redact = backend.plain
        self.timeouts = self._timeouts()
        self.state = SessionState.IDLE
        self.work = Notification()  # for the session's own task
        self.run: Run | None = None
        self.starting: str | None = None
        self.closing = False
        self.draining = False
        self.detached = False
        self._last_turn = 0

    # -- the opening params ------------------------------------------------------------------------------------------

    def hide(self, secrets: Iterable[str]) -> None:
        """Redact these values from the journal and the log."""
        hidden = list(secrets)
        self.redact = self.backend.redactor(hidden) if hidden else self.backend.plain
        LOG.hide_brought(self.id, hidden)

    def change_backend(self, backend: Backend) -> None:
        """Use another configuration of the backend. Earlier secrets stay redacted."""
        self.backend = backend
        self.timeouts = self._timeouts()
        self.redact = self.redact.also(backend.plain)

    def timeouts_of(self, prompt: StoredPrompt | None) -> TurnTimeouts:
        """Return the timers of the prompt's turn: its own `timeout_s` bounds the whole turn."""
        limit = prompt.get("timeout_s") if prompt is not None else None
        return self.timeouts if limit is None else replace(self.timeouts, turn=limit)

    def _timeouts(self) -> TurnTimeouts:
        """Return the timers of the session's turns: each value of the session, else of the backend."""
        if not self.spec.timeouts:
            return self.backend.timeouts
        merged = self.spec.merged_timeouts(self.backend.config.timeouts)
        return replace(merged, resting=self.backend.timeouts.resting)

    @property
    def live_mode(self) -> bool:
        """Tell whether one process serves all turns."""
        return (self.spec.mode or self.backend.mode) == "live"

    @property
    def capabilities(self) -> Capabilities:
        """Return the features of the backend in the session's mode."""
        return self.backend.adapter.capabilities.of(live=self.live_mode)

    def setting(self, name: str) -> str | None:
        """Return the model or permission mode: the last change by a client, else the value at the opening."""
        changed: str | None = self.ledger.settings.get(name) or getattr(self.spec, name)
        return changed

    @property
    def title(self) -> str | None:
        return self.ledger.title_of(self.spec.title)

    @property
    def native_id(self) -> str:
        """Return the CLI's own id of this session, as far as known. The next turn writes to this native session."""
        known = self.ledger.native_session_id or self.spec.resume_native_id
        return known or self.backend.adapter.capabilities.native_id_prefix + self.id

    # -- turns and the process ---------------------------------------------------------------------------------------

    @property
    def ledger(self) -> Ledger:
        return self.recorder.ledger

    @property
    def busy(self) -> bool:
        """Tell whether a turn is running or queued."""
        return self.ledger.current is not None or bool(self.ledger.queue)

    @property
    def live_run(self) -> Run | None:
        """Return the live process, or None."""
        return self.run if self.run is not None and self.run.live else None

    @property
    def active_turn_id(self) -> str | None:
        """Return the running or starting turn, or None."""
        return self.ledger.current.id if self.ledger.current is not None else self.starting

    def next_turn_id(self) -> str:
        """Reserve the id of a new turn. The CLI may begin another turn before the daemon journals the prompt."""
        self._last_turn = max(self._last_turn, self.ledger.turns) + 1
        return f"t{self._last_turn}"

    def advance(self, cause: Cause) -> None:
        """Move to the next state of the lifecycle table."""
        self.state = advance(self.state, cause)

    def keeper_pid(self) -> int | None:
        """Return the pid of the keeper, from its hello, or of the holder of its lock.

        The pid separates clients from the CLI's tools. The kernel names the holder, while a tool can write files.
        """
        if self.run is not None and self.run.keeper_pid is not None:
            return self.run.keeper_pid
        if (turn := self.ledger.active_turn) is None:
            return None
        with suppress(OSError):
            return lock_holder(self.dir.run(turn.run).lock)
        return None

    async def finished(self, turn_id: str) -> int:
        """Wait for the end of the turn, and return the seq of `turn_completed`.

        Raises `UsageError(turn_not_found)`. Raises `WorldError(shutting_down)` if the daemon stops first.
        """
        while True:
            news = self.recorder.news
            if (seq := self.ledger.ends.get(turn_id)) is not None:
                return seq
            if self.ledger.turn(turn_id) is None:
                raise UsageError(
                    f"turn {turn_id} not found in session {self.id}", kind="turn_not_found", hint="see clisup logs"
                )
            if self.detached:
                raise WorldError(
                    f"cannot wait for turn {turn_id} any longer: the daemon is stopping",
                    kind="shutting_down",
                    hint="the turn continues or stays queued: ask again after the restart, with the prompt's key",
                )
            await news.wait()

    # -- the prompts -------------------------------------------------------------------------------------------------

    def save_prompt(self, name: str, prompt: StoredPrompt) -> tuple[KeptPrompt, str | None, str]:
        """Store a prompt until its turn ends, and keep its redacted words.

        Return the words, the name of their blob, and the digest of the stored file for the journal. Blocks: call the
        method in a thread. Raises `WorldError(storage_failed)`.
        """
        kept, blob = KeptPrompt(), None
        if self.services.config.daemon.keep_prompts == "on":
            kept = kept_prompt(prompt, self.redact)
            if kept.blob is not None:
                blob = self.dir.save_kept(name, kept.blob)
        return kept, blob, self.dir.save_prompt(name, prompt)

    def load_prompt(self, name: str, accepted: str | None = None) -> StoredPrompt | None:
        """Return the stored prompt `name`, or None if it is gone or is not the accepted one.

        `accepted` is the name in the ledger, if it is another one. Raises `WorldError(storage_failed)`.
        """
        return self.dir.load_prompt(name, self.ledger.prompts.get(accepted or name))

    def without_prompt(self, turn_id: str) -> TurnError:
        """Return the error of a turn without its accepted prompt. Report a changed file."""
        if not self.dir.has_prompt(turn_id):
            return TurnError(kind="protocol", message="the stored prompt of this turn is gone")
        self.refuse_file(f"prompts/{turn_id}.json")
        text = "the stored prompt of this turn was changed outside of the daemon, so it was not sent"
        return TurnError(kind="storage_failed", message=text)

    def refuse_file(self, name: str, fields: Iterable[str] = ()) -> None:
        """Report a file that was changed from outside, in the log and as a notice. Never report its values."""
        changed = list(fields)
        _log.warning("session file refused", session=self.id, file=name, fields=changed)
        what = f" ({', '.join(changed)})" if changed else ""
        text = f"{name} was changed outside of the daemon{what}: the change is refused"
        data = {"kind": "storage_failed", "file": name, "fields": changed}
        with suppress(WorldError):  # a bad disk: the log has it
            self.recorder.record([Item(Notice(code="state_refused", message=text, data=data))])

    # -- the journal and the session's task --------------------------------------------------------------------------

    def notify(self) -> None:
        """Let the session's task check for work."""
        self.work.notify()

    async def sync(self, then: Callable[[], None] | None = None) -> None:
        """Make the journal durable if the configuration asks for it, then call `then`."""
        if self.services.config.daemon.fsync == "turn":
            await self.recorder.sync(then)
        elif then is not None:
            then()

    def check_open(self) -> None:
        """Raise `UsageError(session_closed)` or `WorldError(shutting_down)` if the session accepts no prompt."""
        if self.state is SessionState.CLOSED or self.closing:
            raise UsageError(
                f"session {self.id} is closed, so it accepts no prompt",
                kind="session_closed",
                hint="open a new session; to go on with this conversation, give its native id as resume_native_id",
            )
        if self.draining:
            raise WorldError(
                "the daemon is stopping, so it accepts no prompt",
                kind="shutting_down",
                hint="try again after its restart",
            )
