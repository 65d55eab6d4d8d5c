"""Open calls of a session's tools: their deadlines, and the error texts of calls without an answer. Pure.

The bridge makes a call, and the client that serves the session answers the call. A call ends after the tool's own time.
Without a serving client a call ends after `wait_s`, if this is earlier. The bridge chooses the call's id: the same id
is the same call, from any connection. All times are monotonic seconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from clisup.model.structs import JsonObject

MAX_OPEN_CALLS = 64
"""Limit of open calls of one session. Further calls get an error."""

Reason = Literal["timeout", "unserved"]


class ToolAnswer(NamedTuple):
    """Answer for the model: text, or blocks of text and images in their wire format."""

    content: str | list[JsonObject]
    is_error: bool = False


class ToolLimits(NamedTuple):
    """Default times in seconds: for a call of a tool without its own time, and for a call without a serving client."""

    timeout_s: float
    wait_s: float


class OwnTimes(NamedTuple):
    """Times of one tool in seconds, with the fields of `ToolLimits`. None stands for the default of all tools."""

    timeout_s: float | None = None
    wait_s: float | None = None


@dataclass(eq=False, slots=True)
class OpenCall:
    """Open call. `ended` is the reason of the end, unless a client answered the call."""

    call_id: str
    name: str
    input: JsonObject
    tool_use_id: str | None
    turn_id: str | None
    timeout_s: float
    wait_s: float
    ends_at: float
    given_up_at: float | None
    waiters: int = 0
    answer: ToolAnswer | None = None
    ended: Reason | None = None


class OpenCalls:
    """Open calls of one session. `times` maps a tool's name to the tool's own times."""

    def __init__(self, times: Mapping[str, OwnTimes]) -> None:
        self._times = times
        self._calls: dict[str, OpenCall] = {}

    def __len__(self) -> int:
        return len(self._calls)

    def __iter__(self) -> Iterator[OpenCall]:
        return iter(list(self._calls.values()))

    def get(self, call_id: str) -> OpenCall | None:
        """Return the open call of this id."""
        return self._calls.get(call_id)

    def refusal(self, call_id: str, name: str) -> ToolAnswer | None:
        """Return an answer for the model if no call of this tool can begin, or None if a call can begin."""
        if name not in self._times:
            return refused(f"There is no tool {name!r}; there are: {', '.join(sorted(self._times))}.")
        if call_id not in self._calls and len(self._calls) >= MAX_OPEN_CALLS:
            return refused(f"The tool was not run, because {MAX_OPEN_CALLS} calls are open: wait for their results.")
        return None

    def begin(
        self,
        call_id: str,
        name: str,
        arguments: JsonObject,
        *,
        tool_use_id: str | None,
        turn_id: str | None,
        served: bool,
        limits: ToolLimits,
        now: float,
    ) -> OpenCall:
        """Return the open call of this id, or a new call. The caller has checked `refusal` before."""
        if (call := self._calls.get(call_id)) is None:
            own = self._times[name]
            timeout_s, wait_s = own.timeout_s or limits.timeout_s, own.wait_s or limits.wait_s
            given_up_at = None if served else now + wait_s
            times = (timeout_s, wait_s, now + timeout_s, given_up_at)
            call = OpenCall(call_id, name, arguments, tool_use_id, turn_id, *times)
            self._calls[call_id] = call
        return call

    def serving(self, *, served: bool, wait_s: float, now: float) -> None:
        """Record whether a client serves the session from now on.

        `wait_s` applies to tools without their own wait time.
        """
        for call in self._calls.values():
            call.wait_s = self._times[call.name].wait_s or wait_s
            call.given_up_at = None if served else now + call.wait_s

    def settle(self, call_id: str, answer: ToolAnswer) -> OpenCall | None:
        """End the call with the first answer. Return None if no call of this id is open."""
        if (call := self._calls.pop(call_id, None)) is not None:
            call.answer = answer
        return call

    def drop(self, call_id: str) -> bool:
        """Remove a call without waiters. Return False for an ended call."""
        return self._calls.pop(call_id, None) is not None

    def next_at(self, call: OpenCall) -> float:
        """Return the time at which the call ends without an answer."""
        return call.ends_at if call.given_up_at is None else min(call.ends_at, call.given_up_at)

    def expire(self, call: OpenCall, now: float) -> bool:
        """End the call after its time, with an answer in words for the model."""
        if call.answer is not None or now < self.next_at(call):
            return False
        call.ended = "timeout" if now >= call.ends_at else "unserved"
        if call.ended == "timeout":
            text = f"The tool did not answer within {call.timeout_s:g} s and was given up; it may still have had an effect."
        else:
            text = f"The tool was not run to its end: for {call.wait_s:g} s there was no client to run it."
        self.settle(call.call_id, refused(text))
        return True


def refused(text: str) -> ToolAnswer:
    """Return an error for the model to read."""
    return ToolAnswer(text, is_error=True)
