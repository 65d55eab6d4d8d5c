"""One try to deliver a message of `[[notify]]`, by a command or by a POST, within its time limit."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

import trio

from clisup.config.model import NotifyConfig
from clisup.host import clock
from clisup.host.process.helpers import run_helper
from clisup.host.threads import in_thread
from clisup.policy.notify import NotifyMessage, one_line, request_of, signature, signing_key

__all__ = ["Delivery", "Outcome"]

KEPT = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_[A-Z]+|TZ|TMPDIR|TERM|XDG_RUNTIME_DIR|DBUS_SESSION_BUS_ADDRESS|DISPLAY|WAYLAND_DISPLAY|XAUTHORITY"
)
"""Variables of the daemon that a command gets. A desktop notification needs the last five."""
FINAL = frozenset(range(400, 500)) - {408, 425, 429}
"""Statuses with which a server refuses a message for good."""


class Outcome(NamedTuple):
    """Result of a try: `detail` is one line. `final`: another try would give the same. `output` is what came back."""

    ok: bool
    detail: str
    output: str = ""
    final: bool = False
    retry_after_s: float | None = None


class Delivery:
    """Way of messages to one target. `env` is the daemon's environment, `socket` the daemon's socket."""

    def __init__(self, config: NotifyConfig, env: Mapping[str, str], socket: str) -> None:
        self._config = config
        self._env = {name: value for name, value in env.items() if KEPT.fullmatch(name)}
        self._socket = socket
        # A thread that hangs, for instance in a look-up of a name, keeps its token: there is never a second one.
        self._threads = trio.CapacityLimiter(1)

    async def attempt(self, message: NotifyMessage) -> Outcome:
        """Deliver the message once."""
        return await (self._run(message) if self._config.url is None else self._post(message))

    async def _run(self, message: NotifyMessage) -> Outcome:
        limit_s = self._config.timeout_s
        about = {
            "CLISUP_NOTIFY": self._config.label,
            "CLISUP_NOTIFY_ID": message.id,
            "CLISUP_NOTIFY_TYPE": message.type,
            "CLISUP_NOTIFY_MESSAGE": message.line,
            "CLISUP_NOTIFY_SESSION": str(message.data.get("session_id") or ""),
            "CLISUP_NOTIFY_TURN": str(message.data.get("turn_id") or ""),
            "CLISUP_SOCKET": self._socket,
        }
        try:
            done = await run_helper(
                self._config.command,
                {**self._env, **about},
                purpose=f"notify {self._config.label}",
                stdin=message.to_json() + b"\n",
                limit_s=limit_s,
            )
        except OSError as error:
            return Outcome(False, f"the command cannot be started: {error.strerror or type(error).__name__}")
        if done.exit_code is None:
            return Outcome(False, f"the command was ended after {limit_s:g} s", done.output)
        if done.exit_code:
            how = f"signal {-done.exit_code}" if done.exit_code < 0 else f"exit code {done.exit_code}"
            return Outcome(False, f"the command ended with {how}", done.output)
        return Outcome(True, "exit code 0", done.output)

    async def _post(self, message: NotifyMessage) -> Outcome:
        from clisup.host.http_post import post  # not needed for the start

        config = self._config
        assert config.url is not None
        url, limit_s = config.url.get_secret_value(), config.timeout_s
        request = request_of(message, config.format)
        headers = request.headers | {name: value.get_secret_value() for name, value in config.headers.items()}
        headers["webhook-id"] = message.id
        if config.secret is not None:
            key = signing_key(config.secret.get_secret_value())
            headers |= signature(key, message.id, int(clock.wall()), request.body)
        with trio.move_on_after(limit_s):
            answer = await in_thread(
                lambda: post(url, request.body, headers, timeout_s=limit_s),
                abandon_on_cancel=True,
                limiter=self._threads,
            )
            if answer.status is None:
                return Outcome(False, answer.error or "no answer")
            ok, text = 200 <= answer.status < 300, _printable(answer.text)
            detail = (
                f"HTTP {answer.status}{', a redirect, which is not followed' if 300 <= answer.status < 400 else ''}"
            )
            return Outcome(ok, detail, text, answer.status in FINAL, answer.retry_after_s)
        return Outcome(False, f"no answer within {limit_s:g} s")


def _printable(text: str) -> str:
    """Return an answer in JSON compactly, another answer as it is."""
    try:
        return one_line(json.dumps(json.loads(text), ensure_ascii=False))
    except (ValueError, RecursionError):
        return text
