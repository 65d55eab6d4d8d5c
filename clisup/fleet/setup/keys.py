"""Keys of members: nkeys of the engine."""

from __future__ import annotations

import os
from typing import NamedTuple

import nkeys  # type: ignore[import-untyped]

from clisup.fleet.member import MemberKey

__all__ = ["KeyPair", "new_key"]


class KeyPair(NamedTuple):
    """Secret key of a member and its public part."""

    key: MemberKey
    public: str


def new_key() -> KeyPair:
    """Return a new random key."""
    seed = bytes(nkeys.encode_seed(os.urandom(32), nkeys.PREFIX_BYTE_USER))
    public = nkeys.from_seed(bytearray(seed)).public_key.decode()
    return KeyPair(MemberKey(seed.decode()), public)
