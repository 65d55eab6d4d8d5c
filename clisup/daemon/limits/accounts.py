"""The accounts behind the backends: their rate limits, shared by all sessions that use them, and the line of those who wait.

An account is told apart by the backend's kind and by the credentials and config directories that were set on purpose; who
sets none uses the login of the daemon's user. Its name holds no secret: it ends with a keyed hash of them.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Protocol
from weakref import WeakValueDictionary

import structlog

from clisup.daemon.backends import Backend
from clisup.daemon.storage import Storage
from clisup.errors import WorldError
from clisup.host import clock
from clisup.host.files import read_json, write_json
from clisup.model.events import AssistantMessage, EventBase, MessageStart, RateLimit, TurnCompleted
from clisup.policy.rate_limit import AccountLimit, describe, fold_limit, iso

__all__ = ["Account", "Accounts", "Held"]

ACCOUNTS_MAX = 256  # remembered, also where no session uses them; the one heard of longest ago goes first
LOOK_AGAIN_S = 30.0  # the wall clock may be set while somebody waits for a time of it
_TELLING = frozenset({RateLimit, MessageStart, AssistantMessage, TurnCompleted})
_IDENTITY = re.compile(r"KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL|_HOME$|_DIR$|^HOME$")
_log = structlog.get_logger()


class Waiter(Protocol):
    """A session with a turn that waits for its account."""

    @property
    def id(self) -> str: ...
    def work_came(self) -> None: ...


class Held:
    """Why a turn waits: until when (None: for the one that tries first), and its place in the line, from 1."""

    def __init__(self, account: str, until: float | None, position: int, now: float) -> None:
        self.account = account
        self.until = until
        self.position = position
        self.retry_after_s = None if until is None else round(max(0.0, until - now), 3)
        self.sleep_s = min(LOOK_AGAIN_S, LOOK_AGAIN_S if until is None else max(0.0, until - now))

    def words(self) -> dict[str, Any]:
        """As programs see it."""
        return {
            "account": self.account,
            "until": iso(self.until),
            "retry_after_s": self.retry_after_s,
            "position": self.position,
        }


class Account:
    """One account: its limit, who waits for its end, and who tries first after that."""

    def __init__(self, name: str, kind: str, limit: AccountLimit, owner: Accounts) -> None:
        self.name = name
        self.kind = kind
        self.limit = limit
        self._owner = owner
        self._waiting: dict[str, Waiter] = {}
        self._probe: str | None = None

    def held(self, session: Waiter) -> Held | None:
        """Must a new turn of this session wait? One that asks for the first time gets the last place in the line."""
        now = clock.wall()
        until = self.limit.holds(now, self._owner.hold_s)
        if until is None and (self.limit.state != "limited" or self.limit.until is None or not self._owner.hold_s):
            return None
        places = [*self._waiting]
        place = places.index(session.id) if session.id in self._waiting else len(places)
        if until is None and (self._probe == session.id or (self._probe is None and place == 0)):
            return None
        return Held(self.name, until, place + 1, now)

    def wait(self, session: Waiter) -> None:
        """Take a place in the line."""
        self._waiting.setdefault(session.id, session)

    def leave(self, session: Waiter) -> None:
        """Give the place up."""
        if self._waiting.pop(session.id, None) is not None:
            self.wake()

    def start(self, session: Waiter) -> None:
        """A turn of this session starts now: the first one after a limit's end is the probe."""
        self.leave(session)
        if self.limit.state == "limited" and self.limit.until is not None and self._probe is None:
            self._probe = session.id

    def stop(self, session: Waiter) -> None:
        """That turn is over."""
        if self._probe == session.id:
            self._probe = None
            self.wake()

    def see(self, *events: EventBase) -> None:
        """Take note of events of one of its turns. However many they are, the limit is stored and told of once."""
        before = limit = self.limit
        for event in events:
            if type(event) in _TELLING:
                limit = fold_limit(limit, event, clock.wall())
        if limit is before:
            return
        self._owner.heard_of(self)
        if not limit.says_more_than(before):
            return
        if (limit.state == "limited") != (before.state == "limited"):
            _log.warning("account limit", account=self.name, state=limit.state, until=iso(limit.until))
        self.limit = limit
        self._owner.save(self)
        self.wake()

    def wake(self) -> None:
        """Let everybody look again who waits for this account."""
        for session in list(self._waiting.values()):
            session.work_came()

    def describe(self) -> dict[str, Any]:
        """A row of `daemon/status`."""
        row = {"account": self.name, "kind": self.kind, **describe(self.limit)}
        return {**row, "waiting": [*self._waiting], "probe": self._probe}


class Accounts:
    """All of them. `hold_s` is the longest that a turn is held back; 0 holds none."""

    def __init__(self, state_dir: str, storage: Storage, *, hold_s: float) -> None:
        self.hold_s = hold_s
        self._path = os.path.join(state_dir, "accounts.json")
        self._storage = storage
        # Those that sessions use: a program may bring a new token with each of its sessions, for months.
        self._all: WeakValueDictionary[str, Account] = WeakValueDictionary()
        stored = self._load()
        self._salt = str(stored.get("salt") or secrets.token_hex(16))
        self.nobodys = Account("nobody", "none", AccountLimit(), self)
        """That of sessions which are deleted."""
        limits = stored.get("limits")
        self._known: dict[str, Any] = limits if isinstance(limits, dict) else {}

    def hold(self, hold_s: float) -> None:
        """Another longest time, from now on: who waits looks again."""
        self.hold_s = hold_s
        for account in list(self._all.values()):
            account.wake()

    def _load(self) -> dict[str, Any]:
        try:
            return read_json(self._path) or {}
        except WorldError as error:  # what was known of limits is lost; that ends no daemon
            _log.warning("account limits not read", error=error.message)
            return {}

    def of(self, backend: Backend, request_env: Mapping[str, str]) -> Account:
        """The account that a session of this backend uses, with the variables that its client brought."""
        kind = backend.config.kind
        given = {name: value.get_secret_value() for name, value in backend.config.env.items()} | dict(request_env)
        marks = sorted((name, value) for name, value in given.items() if _IDENTITY.search(name))
        name = f"{kind}#{self._hash(marks)}" if marks else kind
        if (account := self._all.get(name)) is None:
            account = self._all[name] = Account(name, kind, _limit(self._known.get(name)), self)
        return account

    def _hash(self, marks: list[tuple[str, str]]) -> str:
        return hashlib.blake2b(repr(marks).encode(), key=self._salt.encode(), digest_size=5).hexdigest()

    def heard_of(self, account: Account) -> None:
        """Make it the last one to be forgotten."""
        if (known := self._known.pop(account.name, None)) is not None:
            self._known[account.name] = known

    def save(self, account: Account) -> None:
        """Keep what was heard of it now; a disk that refuses only makes the next daemon ask again."""
        self._known.pop(account.name, None)
        self._known[account.name] = account.limit.model_dump(exclude_none=True)
        self._known = dict(list(self._known.items())[-ACCOUNTS_MAX:])
        with suppress(WorldError), self._storage.watched():
            write_json(self._path, {"version": 1, "salt": self._salt, "limits": self._known}, sync=False)

    def describe(self) -> list[dict[str, Any]]:
        """The accounts that sessions use and of which something is known, or for which somebody waits."""
        rows = (account.describe() for account in list(self._all.values()))
        return [row for row in rows if row["state"] != "unknown" or row["waiting"]]


def _limit(stored: Any) -> AccountLimit:
    try:
        return AccountLimit.model_validate(stored or {})
    except ValueError:
        return AccountLimit()
