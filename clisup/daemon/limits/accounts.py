"""Accounts behind the backends: the rate limit of each account, shared by its sessions, and the waiting sessions.

The backend's kind, and explicitly set credentials and config directories, identify an account. Without any, the account
is the login of the daemon's user. The account's name holds no secret: the name ends with a keyed hash of the
credentials and directories.

A backend's key `account` names its account instead. Only these accounts are shared by the boxes of a fleet. Nothing
else means the same on every box: a path does not, and a login without a credential of ours has no mark to compare.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

from clisup.config.model import Config
from clisup.daemon.backends import Backend
from clisup.daemon.journal.storage import Storage
from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.files import read_json, write_json
from clisup.host.log import event_logger
from clisup.model.events import AssistantMessage, EventBase, MessageStart, RateLimit, TurnCompleted
from clisup.policy.rate_limit import AccountLimit, describe, fold_limit, iso

__all__ = ["Account", "AccountWait", "Accounts"]

ACCOUNTS_MAX = 256  # stored accounts, used by a session or not; the account without news for longest goes first
CHECK_AGAIN_S = 30.0  # the wall clock may be set while a session waits
ELSEWHERE_S = 60.0  # after the limit's end, or after the last word of the fleet's agent: an agent may die
CLOCK_S = 5.0  # a report from a later time than that is from a wrong clock, and would outlast all true ones
_LIMIT_EVENTS = frozenset({RateLimit, MessageStart, AssistantMessage, TurnCompleted})
_IDENTITY = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|_HOME$|_DIR$|^HOME$")
_log = event_logger()


class AccountWait:
    """Reason for a turn's wait. `until` is the limit's end, or None while another turn tries first. Positions begin at 1."""

    def __init__(self, account: str, until: float | None, position: int, now: float, sleep_s: float) -> None:
        self.account = account
        self.until = until
        self.position = position
        self.retry_after_s = None if until is None else round(max(0.0, until - now), 3)
        self.sleep_s = min(CHECK_AGAIN_S, sleep_s)

    def describe(self) -> dict[str, Any]:
        """Return the wait in the form for clients."""
        return {
            "account": self.account,
            "until": iso(self.until),
            "retry_after_s": self.retry_after_s,
            "position": self.position,
        }


class Account:
    """Account with its limit, the sessions waiting for the limit's end, and the session whose turn tries first afterwards.

    A shared account has a name of the configuration. Its `key` differs from that of every other account.
    """

    def __init__(self, name: str, kind: str, limit: AccountLimit, owner: Accounts, *, key: str = "") -> None:
        self.name = name
        self.kind = kind
        self.key = key or name
        self.limit = limit
        self._owner = owner
        self._waiting: dict[str, Callable[[], None]] = {}  # by session id, in order
        self._probe: str | None = None  # the session with the first try
        self._elsewhere_at: float | None = None  # when the fleet's agent last left the first try to other boxes

    def held(self, session_id: str) -> AccountWait | None:
        """Return why a new turn of the session must wait, or None. Before `join`, the session has the last place."""
        now = clock.wall()
        until = self.limit.holds(now, self._owner.hold_s)
        if until is None and (self.limit.state != "limited" or self.limit.until is None or not self._owner.hold_s):
            return None
        places = [*self._waiting]
        place = places.index(session_id) if session_id in self._waiting else len(places)
        sleep_s = until - now if until is not None else self._elsewhere_s(now)
        if not sleep_s and (self._probe == session_id or (self._probe is None and place == 0)):
            return None
        return AccountWait(self.name, until, place + 1, now, sleep_s or CHECK_AGAIN_S)

    def _elsewhere_s(self, now: float) -> float:
        """Return the seconds for which the first try after the limit's end is another box's."""
        if self._elsewhere_at is None:
            return 0.0
        last = (self.limit.said_at or now) + self._owner.hold_s
        end = min(max(self._elsewhere_at, self.limit.until or 0.0) + ELSEWHERE_S, last)
        return min(max(0.0, end - now), ELSEWHERE_S)

    def join(self, session_id: str, notify: Callable[[], None]) -> None:
        """Add the session to the waiting sessions. `notify` lets the session check again."""
        self._waiting.setdefault(session_id, notify)

    def leave(self, session_id: str) -> None:
        """Remove the session from the waiting sessions."""
        if self._waiting.pop(session_id, None) is not None:
            self.notify()

    def turn_started(self, session_id: str) -> None:
        """Let a turn of the session start. The first turn after a limit's end is the probe."""
        self.leave(session_id)
        if self.limit.state == "limited" and self.limit.until is not None and self._probe is None:
            self._probe = session_id

    def turn_ended(self, session_id: str) -> None:
        """End the probe if this turn was the probe."""
        if self._probe == session_id:
            self._probe = None
            self.notify()

    def observe(self, *events: EventBase) -> None:
        """Fold events of a turn of the account. Store and report the limit once for all events."""
        before = limit = self.limit
        for event in events:
            if type(event) in _LIMIT_EVENTS:
                limit = fold_limit(limit, event, clock.wall())
        if limit is before:
            return
        self._owner.keep_known(self)
        if limit.says_more_than(before):
            self._take(limit)

    def learn(self, limit: AccountLimit | None, *, elsewhere: bool) -> None:
        """Take a limit that another box of the fleet reports, if it is the later one.

        `elsewhere`: for a minute, another box has the first try after the end. The fleet's agent repeats it.
        """
        now = clock.wall()
        if limit is not None and (self.limit.said_at or 0.0) < (limit.said_at or 0.0) <= now + CLOCK_S:
            self._take(limit)
        was, self._elsewhere_at = self._elsewhere_at, now if elsewhere else None
        if was is not None and not elsewhere:
            self.notify()

    def _take(self, limit: AccountLimit) -> None:
        before = self.limit
        if (limit.state == "limited") != (before.state == "limited"):
            _log.warning("account limit", account=self.name, state=limit.state, until=iso(limit.until))
        self.limit = limit
        self._owner.save(self)
        self.notify()

    def notify(self) -> None:
        """Let all waiting sessions check again."""
        for notify in list(self._waiting.values()):
            notify()

    def describe(self) -> dict[str, Any]:
        """Return a row of `daemon/status`."""
        row = {"account": self.name, "kind": self.kind, **describe(self.limit)}
        return {**row, **self.places()}

    def places(self) -> dict[str, Any]:
        """Return the sessions that wait, in order, and the session that tries first."""
        return {"waiting": [*self._waiting], "probe": self._probe}


class Accounts:
    """All accounts. `hold_s` is the longest time to hold back a turn; 0 holds back no turn.

    `shared` are the accounts that the configuration names, whether a session uses them or not.
    """

    def __init__(self, state_dir: str, storage: Storage, config: Config) -> None:
        self._path = os.path.join(state_dir, "accounts.json")
        self._storage = storage
        # Weak references: a program may bring a new token with each of its sessions, for months.
        self._all: WeakValueDictionary[str, Account] = WeakValueDictionary()
        stored = self._load()
        self._salt = str(stored.get("salt") or secrets.token_hex(16))
        self.unused = Account("nobody", "none", AccountLimit(), self)
        """Account of deleted sessions."""
        limits = stored.get("limits")
        self._known: dict[str, Any] = limits if isinstance(limits, dict) else {}
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Take the accounts' names, and the longest time to hold back a turn. Waiting sessions check again."""
        self.hold_s = config.daemon.limit_hold_s
        named = {backend.account: backend.kind for backend in config.backends.values() if backend.account}
        self.shared = {name: self._named(name, kind) for name, kind in named.items()}
        for account in list(self._all.values()):
            account.notify()

    def _load(self) -> dict[str, Any]:
        try:
            return read_json(self._path) or {}
        except WorldError as error:  # the daemon works without the known limits, too
            _log.warning("account limits not read", error=error.message)
            return {}

    def account_of(self, backend: Backend, request_env: Mapping[str, str]) -> Account:
        """Return the account for a session of this backend. `request_env` are the variables of the client."""
        kind = backend.config.kind
        given = {name: value.get_secret_value() for name, value in backend.config.env.items()} | dict(request_env)
        marks = sorted((name, value) for name, value in given.items() if _IDENTITY.search(name))
        if backend.config.account and not any(_IDENTITY.search(name) for name in request_env):
            return self._named(backend.config.account, kind)
        name = f"{kind}#{self._hash(marks)}" if marks else kind
        return self._get(name, name, kind)

    def _named(self, name: str, kind: str) -> Account:
        return self._get(f"={name}", name, kind)

    def _get(self, key: str, name: str, kind: str) -> Account:
        if (account := self._all.get(key)) is None:
            account = self._all[key] = Account(name, kind, _limit(self._known.get(key)), self, key=key)
        return account

    def _hash(self, marks: list[tuple[str, str]]) -> str:
        return hashlib.blake2b(repr(marks).encode(), key=self._salt.encode(), digest_size=5).hexdigest()

    def keep_known(self, account: Account) -> None:
        """Mark the account as the most recent: the oldest accounts are forgotten first."""
        if (known := self._known.pop(account.key, None)) is not None:
            self._known[account.key] = known

    def save(self, account: Account) -> None:
        """Store the account's limit. If the disk refuses, the next daemon learns the limit again."""
        self._known.pop(account.key, None)
        self._known[account.key] = account.limit.model_dump(exclude_none=True)
        self._known = dict(list(self._known.items())[-ACCOUNTS_MAX:])
        with suppress(WorldError), self._storage.watched():
            write_json(self._path, {"version": 1, "salt": self._salt, "limits": self._known}, sync=False)

    def describe(self) -> list[dict[str, Any]]:
        """Return the used accounts with a known limit or waiting sessions."""
        rows = (account.describe() for account in list(self._all.values()))
        return [row for row in rows if row["state"] != "unknown" or row["waiting"]]


def _limit(stored: Any) -> AccountLimit:
    try:
        return AccountLimit.model_validate(stored or {})
    except ValueError:
        return AccountLimit()
