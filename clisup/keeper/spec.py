"""Messages to a keeper: the launch spec on stdin, and the checks of single fields."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn

PROTO = 1
DAY_S = 86_400.0  # the longest wait and grace: the timeout of poll, an int of milliseconds, ends at 24 days
DEFAULTS: dict[str, Any] = {
    "marker": {}, "stdin": None, "stdin_eof": True, "stdout_mode": "pipe", "limits": {}, "wall_s": 0, "lease_s": DAY_S,
    "term_grace_s": 5, "int_grace_s": 2, "orphans": "grace", "orphan_grace_s": 0, "oom_score_adj": 300, "cgroup": None,
    "umask": 0o077,
}  # fmt: skip


class InvalidMessage(ValueError):
    """The daemon sent a message outside the protocol. The text names keys, never values."""


@dataclass
class RunSpec:
    """Launch spec of one run. argv and env are bytes, as `execve` takes them."""

    run_dir: str
    argv: list[bytes]
    env: dict[bytes, bytes]
    """The whole environment of the CLI, with the marker."""
    marker: dict[str, str]
    cwd: str
    stdin: bytes | None
    stdin_eof: bool
    stdout_mode: str
    """`pipe`, or `file` for a CLI that loses unread pipe data at its exit."""
    spool_bytes: int
    stderr_bytes: int
    wall_s: float
    lease_s: float
    term_grace_s: float
    int_grace_s: float
    orphans: str
    """`grace`, `kill` or `keep`: the treatment of processes that the CLI leaves behind."""
    orphan_grace_s: float
    oom_score_adj: int
    cgroup: str | None
    umask: int

    def forget_secrets(self) -> None:
        """Drop the fields that only the start needs, so that no memory dump of the keeper has secrets."""
        self.argv, self.env, self.stdin = [], {}, None


def parse_spec(data: bytes) -> RunSpec:
    """Read and check a launch spec. Raises `InvalidMessage`."""
    try:
        return _spec_of(DEFAULTS | parse_object(data))
    except (ValueError, TypeError, AttributeError) as error:
        reason = error.args[0] if isinstance(error, InvalidMessage) else "a value has the wrong shape"
        raise InvalidMessage(f"cannot read the launch spec: {reason}") from None


def _spec_of(message: dict[str, Any]) -> RunSpec:
    if field_of(message, "proto", int) != PROTO:
        raise InvalidMessage(f"proto is not {PROTO}")
    argv = [_encoded(item) for item in field_of(message, "argv", list)]
    if not argv or not argv[0].startswith(b"/"):
        raise InvalidMessage("argv[0] is no absolute path")
    if message["stdout_mode"] not in ("pipe", "file") or message["orphans"] not in ("grace", "kill", "keep"):
        raise InvalidMessage("stdout_mode or orphans is unknown")
    env = field_of(message, "env", dict) | message["marker"]
    if any(not name or "=" in name for name in env):
        raise InvalidMessage("env has a name that is empty or holds '='")
    limits = {"spool_bytes": 0, "stderr_bytes": 0} | message["limits"]
    stdin = message["stdin"]
    return RunSpec(
        run_dir=field_of(message, "run_dir", str),
        argv=argv,
        env={_encoded(name): _encoded(value) for name, value in env.items()},
        marker=message["marker"],
        cwd=field_of(message, "cwd", str),
        stdin=None if stdin is None else stdin.encode(),
        stdin_eof=message["stdin_eof"],
        stdout_mode=message["stdout_mode"],
        spool_bytes=limits["spool_bytes"],
        stderr_bytes=limits["stderr_bytes"],
        wall_s=seconds_of(message, "wall_s", limit=366 * DAY_S),
        lease_s=seconds_of(message, "lease_s", limit=366 * DAY_S),
        term_grace_s=seconds_of(message, "term_grace_s", limit=366 * DAY_S),
        int_grace_s=seconds_of(message, "int_grace_s", limit=366 * DAY_S),
        orphans=message["orphans"],
        orphan_grace_s=seconds_of(message, "orphan_grace_s", limit=366 * DAY_S),
        oom_score_adj=field_of(message, "oom_score_adj", int),
        cgroup=message["cgroup"],
        umask=field_of(message, "umask", int),
    )


def _encoded(text: str) -> bytes:
    data = text.encode("utf-8", "surrogateescape")
    if b"\0" in data:
        raise InvalidMessage("argv or env holds a NUL")
    return data


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidMessage(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def parse_object(data: bytes) -> dict[str, Any]:
    """Parse one JSON object. Raises `ValueError` for any other data, at any depth of nesting."""
    try:
        value = _DECODER.decode(data.decode())
    except RecursionError:
        raise InvalidMessage("JSON is nested too deeply") from None
    except json.JSONDecodeError:
        raise InvalidMessage("no JSON") from None
    if type(value) is not dict:
        raise InvalidMessage("no JSON object")
    return value


def field_of(message: dict[str, Any], key: str, kind: type) -> Any:
    """Return the value if its type is exactly `kind` (True is no int). Raises `InvalidMessage`."""
    value = message.get(key)
    if type(value) is not kind:
        raise InvalidMessage(f"{key} is missing or no {kind.__name__}")
    return value


def seconds_of(message: dict[str, Any], key: str, limit: float = DAY_S) -> float:
    """Return a number of seconds, at most `limit`. Raises `InvalidMessage`."""
    value: Any = message.get(key)
    if type(value) not in (int, float) or not value >= 0:
        raise InvalidMessage(f"{key} is no number of seconds")
    return min(float(value), limit)
