"""Hint after an authentication failure: the keys that clisup kept away from the CLI, and how to pass them on."""

from __future__ import annotations

import os
import re

from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.errors import ClisupError
from clisup.locations import box_of

__all__ = ["dropped_keys_hint"]

_NAME = re.compile(r"[A-Z][A-Z0-9]*_[A-Z0-9_]+")


def dropped_keys_hint(path: str, backend: str, reason: str) -> str:
    """Return the beginning of a hint, or "" if no key was kept away.

    It names the keys that the daemon holds back, and those that only this command's environment has. `reason` is the message
    of the CLI, which may name the variable that it misses.
    """
    try:
        with Client.connect(path, name="clisup-run") as client:
            report = client.call("backend/env", name=backend)
    except ClisupError:
        return ""
    held = _held_by_daemon(report, reason)
    passed = {item["name"] for part in ("kept", "set") for item in report.get(part) or []}
    mine = [name for name in report.get("keys") or [] if os.environ.get(name) and name not in {*held, *passed}]
    if box_of(path):  # a box does not start from this shell
        mine = []
    return _of_daemon(held, backend) + _of_shell(mine, backend)


def _held_by_daemon(report: JsonObject, reason: str) -> list[str]:
    names = list(report.get("held_back") or [])
    dropped = {item["name"] for item in report.get("dropped") or [] if ".deny:" not in item["rule"]}
    # The CLI may name the missing variable, as codex does for a custom provider.
    return names + [name for name in dict.fromkeys(_NAME.findall(reason)) if name in dropped and name not in names]


def _of_daemon(names: list[str], backend: str) -> str:
    if not names:
        return ""
    it = "it" if len(names) == 1 else "them"
    return (
        f"the daemon has {' and '.join(names)} and holds {it} back: to pass {it} on, set {_setting(names, backend)}, then "
        "clisup daemon reload; or "
    )


def _of_shell(names: list[str], backend: str) -> str:
    if not names:
        return ""
    verb, it = ("is", "it") if len(names) == 1 else ("are", "them")
    return (
        f"{' and '.join(names)} {verb} set in this shell, but {backend} did not get {it}: clisup setup passes {it} on, or set "
        f"{_setting(names, backend)} and start the daemon from this shell (clisup stop, then clisup start); or "
    )


def _setting(names: list[str], backend: str) -> str:
    listed = ", ".join(f'"{name}"' for name in names)
    return f"pass_env = [{listed}] in [backends.{backend}]"
