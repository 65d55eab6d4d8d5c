"""Prompts of an editor that wait for the end of their turns, and the protocol's words for that end."""

from __future__ import annotations

import trio

from clisup.client.events import TurnCompleted
from clisup.client.raw import JsonObject
from clisup.errors import TURN_KINDS, ClisupError, WorldError

__all__ = ["EditorTurn", "prompt_result", "stop_reason"]


class EditorTurn:
    """Prompt of an editor. `turn_id` is known once the daemon has accepted it; `wait` returns the turn's end."""

    def __init__(self, key: str, before: EditorTurn | None) -> None:
        """`before` is the prompt that came before this one in its session and goes to the daemon first."""
        self.key, self._before = key, before
        self.turn_id: str | None = None
        self.cancelled = False
        self._sent, self._over = trio.Event(), trio.Event()
        self._end: TurnCompleted | ClisupError | None = None

    async def wait_for_my_place(self) -> None:
        """Wait until the prompt before this one was sent."""
        if self._before is not None:
            await self._before._sent.wait()
            self._before = None

    def sent(self) -> None:
        """Note that the daemon has taken or refused the prompt."""
        self._sent.set()

    def accepted(self, key: str | None, turn_id: str | None) -> None:
        """Take an acceptance of any prompt."""
        if key == self.key:
            self.turn_id = turn_id

    def ended(self, turn_id: str | None, end: TurnCompleted) -> None:
        """Take the end of any turn."""
        if turn_id is not None and turn_id == self.turn_id and self._end is None:
            self._end = end
            self._over.set()

    def fail(self, error: ClisupError) -> None:
        """End the wait: the turn cannot be followed."""
        if self._end is None:
            self._end = error
            self._over.set()

    def leave(self) -> None:
        """End the wait, because the editor has left the session. The turn of a cancelled prompt ends as interrupted."""
        if self.cancelled and self._end is None:
            self._end = TurnCompleted("interrupted")
            self._over.set()
        self.fail(WorldError("the session was opened again while its turn ran", kind="request_cancelled"))

    async def wait(self) -> TurnCompleted:
        """Return the end. Raises `ClisupError` if the turn cannot be followed."""
        await self._over.wait()
        assert self._end is not None
        if isinstance(self._end, ClisupError):
            raise self._end
        return self._end


def prompt_result(end: TurnCompleted, backend: str, session_id: str) -> JsonObject:
    """Return the answer to `session/prompt`. Raises `WorldError` for a turn that failed, with the reason and the next step."""
    reason = stop_reason(end)
    if reason is None:
        kind = end.error.kind if end.error else "crashed"
        hint = TURN_KINDS[kind].hint.format(backend=backend, session_id=session_id[:8])
        words = end.error.message if end.error else end.outcome
        if end.delivery == "uncertain":
            hint = "nobody knows whether the CLI received the prompt: look at its work before you send it again"
        raise WorldError(f"the turn {'timed out' if end.outcome == 'timed_out' else 'failed'}: {words}", hint=hint,
                         turn_error=kind)  # fmt: skip
    return {"stopReason": reason, **_usage(end), "_meta": {"clisup": {"cost_usd": end.cost_usd}}}


def stop_reason(end: TurnCompleted) -> str | None:
    """Return the protocol's reason for the end of a turn, or None for a failure."""
    kind = end.error.kind if end.error else None
    if end.outcome == "interrupted" or kind == "cancelled":
        return "cancelled"
    if kind == "refusal" or end.stop_reason == "refusal":
        return "refusal"
    if kind == "max_turns":
        return "max_turn_requests"
    if end.outcome != "completed":
        return None
    return "max_tokens" if end.stop_reason == "max_tokens" else "end_turn"


def _usage(end: TurnCompleted) -> JsonObject:
    """Return the tokens, if the CLI has reported all that the protocol requires."""
    usage = end.usage
    read, written = usage.input_tokens, usage.output_tokens
    if read is None or written is None:
        return {}
    more = {
        "thoughtTokens": usage.reasoning_tokens,
        "cachedReadTokens": usage.cache_read_input_tokens,
        "cachedWriteTokens": usage.cache_creation_input_tokens,
    }
    counts = {name: count for name, count in more.items() if count is not None}
    total = usage.total_tokens or read + written
    return {"usage": {"totalTokens": total, "inputTokens": read, "outputTokens": written, **counts}}
