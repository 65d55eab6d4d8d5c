"""Tokens of browsers, and links that sign a browser in once. The file holds hashes alone, and only its owner reads it."""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, cast

from clisup.client.raw import JsonObject
from clisup.errors import UsageError
from clisup.host.files import make_private_dir, read_json, write_json
from clisup.web.access.rules import ROLES, Role
from clisup.web.push.messages import PushAddress

__all__ = ["LINK_S", "MOST_LINKS", "MOST_TOKENS", "TOKEN_S", "TokenBook", "WebToken"]

LINK_S = 600.0
"""Seconds for which a login link works. It works once."""

TOKEN_S = 30 * 24 * 3600.0
"""Seconds for which a browser stays signed in."""

MOST_TOKENS = 100
"""Tokens at once. `clisup web tokens revoke` makes room."""

MOST_LINKS = 20
"""Links at once. A further link removes the oldest one."""

_BYTES = 32


class WebToken(NamedTuple):
    """Token of one browser, without its secret. `created` and `expires` are seconds since the epoch."""

    id: str
    name: str
    role: Role
    created: float
    expires: float


class TokenBook:
    """Tokens, links and push addresses in `directory`/tokens.json. Several processes may change the file.

    A check reads the file again after each change, so a revoked token is refused by the next request.
    """

    def __init__(self, directory: str, clock: Callable[[], float] = time.time) -> None:
        self._directory, self._clock = directory, clock
        self.path = os.path.join(directory, "tokens.json")
        self._seen: tuple[int, ...] | None = None
        self._tokens: dict[str, WebToken] = {}
        self._links: dict[str, WebToken] = {}
        self._push: dict[str, PushAddress] = {}

    def check(self, secret: str) -> WebToken | None:
        """Return the token with this secret while it is valid."""
        self._load()
        token = self._tokens.get(_hash(secret))
        return token if token is not None and token.expires > self._clock() else None

    def tokens(self) -> list[WebToken]:
        """Return the valid tokens, oldest first."""
        self._load()
        return sorted((t for t in self._tokens.values() if t.expires > self._clock()), key=lambda t: t.created)

    def add_link(self, name: str, role: Role) -> str:
        """Return the code of a new link. Its browser gets a token with this name and role."""
        with self._changing():
            code = secrets.token_urlsafe(_BYTES)
            self._links[_hash(code)] = self._made(name, role, LINK_S)
            for old in sorted(self._links, key=lambda key: self._links[key].created)[:-MOST_LINKS]:
                del self._links[old]
            return code

    def link(self, code: str) -> WebToken | None:
        """Return the name and role of a link that works, and do not use it up."""
        self._load()
        link = self._links.get(_hash(code))
        return link if link is not None and link.expires > self._clock() else None

    def redeem(self, code: str) -> tuple[str, WebToken] | None:
        """Use up a link. Return the secret of a new token with the token, or None for an unknown or old link.

        Raises `UsageError(overloaded)` for too many tokens.
        """
        with self._changing():
            link = self._links.pop(_hash(code), None)
            if link is None:
                return None
            if len(self._tokens) >= MOST_TOKENS:
                raise UsageError(
                    f"{MOST_TOKENS} browsers are signed in, and that is the limit",
                    kind="overloaded",
                    hint="clisup web tokens list, then clisup web tokens revoke ID",
                )
            secret = secrets.token_urlsafe(_BYTES)
            token = self._tokens[_hash(secret)] = self._made(link.name, link.role, TOKEN_S)
            return secret, token

    def revoke(self, id_: str) -> WebToken | None:
        """Remove the token with this id and return it, or None for an unknown id."""
        with self._changing():
            key = next((key for key, token in self._tokens.items() if token.id == id_), None)
            return None if key is None else self._tokens.pop(key)

    def push_addresses(self) -> dict[str, PushAddress]:
        """Return the push address of each valid token that has one, by the token's id."""
        return {token.id: self._push[token.id] for token in self.tokens() if token.id in self._push}

    def set_push_address(self, id_: str, address: PushAddress | None) -> None:
        """Keep the only push address of a token, or remove it. It is removed with its token, too."""
        with self._changing():
            self._push.pop(id_, None)
            if address is not None:
                self._push[id_] = address

    def _made(self, name: str, role: Role, seconds: float) -> WebToken:
        now = self._clock()
        return WebToken(secrets.token_hex(4), name, role, now, now + seconds)

    # -- the file

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Hold the lock, read the file, and write it after the block. Old entries are dropped."""
        make_private_dir(self._directory)
        fd = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            self._seen = None
            self._load()
            now = self._clock()
            for entries in (self._tokens, self._links):
                for key in [key for key, token in entries.items() if token.expires <= now]:
                    del entries[key]
            yield
            known = {token.id for token in self._tokens.values()}
            push = {id_: address._asdict() for id_, address in self._push.items() if id_ in known}
            write_json(self.path, {"tokens": _rows(self._tokens), "links": _rows(self._links), "push": push})
        finally:
            os.close(fd)

    def _load(self) -> None:
        try:
            info = os.stat(self.path)
            seen = (info.st_ino, info.st_mtime_ns, info.st_size)
        except OSError:
            seen = (0, 0, 0)
        if seen != self._seen:
            stored = read_json(self.path) or {}
            self._tokens, self._links = _entries(stored.get("tokens")), _entries(stored.get("links"))
            self._push = _push_entries(stored.get("push"))
            self._seen = seen


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _rows(entries: dict[str, WebToken]) -> JsonObject:
    return {key: token._asdict() for key, token in entries.items()}


def _entries(stored: object) -> dict[str, WebToken]:
    """Return the entries of the file. An entry of another form is left out, so its browser is signed out."""
    found = {}
    for key, row in stored.items() if isinstance(stored, dict) else ():
        try:
            if row["role"] in ROLES:
                role = cast("Role", row["role"])
                token = WebToken(str(row["id"]), str(row["name"]), role, float(row["created"]), float(row["expires"]))
                found[str(key)] = token
        except (KeyError, TypeError, ValueError):
            continue
    return found


def _push_entries(stored: object) -> dict[str, PushAddress]:
    """Return the push addresses of the file. One of another form is left out."""
    found = {}
    for id_, row in stored.items() if isinstance(stored, dict) else ():
        try:
            found[str(id_)] = PushAddress(str(row["endpoint"]), str(row["p256dh"]), str(row["auth"]))
        except (KeyError, TypeError):
            continue
    return found
