"""A session of the blocking client: `client.open(...)` or `client.attach(session_id)` gives one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

from clisup.client.answers import Approval, Decision, prompted, read
from clisup.client.coming_back import again_until, may_come_back, new_key, prompt_surely
from clisup.client.event_stream import Events, Turn
from clisup.client.events import Envelope, envelope_of
from clisup.client.options import EventOptions, PromptOptions
from clisup.errors import ClisupError
from clisup.wire.models import InterruptResult, PromptResult, SessionDetail, TurnResult

if TYPE_CHECKING:
    from clisup.client.calls import Calls

__all__ = ["Session"]

Prompt = str | list[dict[str, Any]]
_GONE = ("session_not_found", "session_closed")
_PAGE = 1000


class Session:
    """One session, by its `id`. It outlives this object, the client and the daemon; in a `with` block it is closed at the end.

    Every method raises `ClisupError` with the daemon's `kind`: `session_not_found`, `session_closed`, `unsupported` where the
    backend cannot do it.
    """

    def __init__(self, client: Calls, session_id: str, native_session_id: str | None = None) -> None:
        self._client, self.id, self.native_session_id = client, session_id, native_session_id

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    # -- prompts

    @overload
    def prompt(self, prompt: Prompt, *, wait: Literal[True] = True, **options: Unpack[PromptOptions]) -> TurnResult: ...
    @overload
    def prompt(self, prompt: Prompt, *, wait: Literal[False], **options: Unpack[PromptOptions]) -> PromptResult: ...
    def prompt(
        self, prompt: Prompt, *, wait: bool = True, **options: Unpack[PromptOptions]
    ) -> TurnResult | PromptResult:
        """Send a prompt and give the turn's result, also across restarts of the daemon; without `wait`, its acceptance.

        When the daemon goes away it is asked again by the same `key` (made here where none is given), which never prompts
        twice. A result with `delivery == "uncertain"` says that nobody saw whether the CLI took the prompt, with the
        `evidence`: to send it once more, under another key, is the caller's decision.
        """
        return prompted(self._prompt("session/prompt", {"prompt": prompt, "wait": wait, **options}), wait=wait)

    def run(
        self,
        prompt: Prompt,
        *,
        deltas: bool = True,
        on_approval: Callable[[Approval], Decision] | None = None,
        **options: Unpack[PromptOptions],
    ) -> Turn:
        """Send a prompt, and iterate over the events of its turn up to its end; `result` of the iterator is then the end.

        Without `deltas` text comes by whole messages. `on_approval` is asked, between two events, whenever the turn waits for
        an approval. Leaving the iteration leaves the turn running: `interrupt` ends it.
        """
        accepted = self.prompt(prompt, wait=False, **options)

        def listen() -> Events:
            return self._client.events(self.id, accepted.seq - 1, deltas=deltas)

        try:
            events = listen()
        except ClisupError as error:  # the turn goes on, also where the daemon goes away just now
            if not may_come_back(error):
                raise
            events = again_until(listen, error)
        return Turn(self, accepted, events, on_approval)

    def interrupt(
        self, turn_id: str | None = None, *, mode: Literal["graceful", "kill"] = "graceful"
    ) -> InterruptResult:
        """End the running turn, or take a queued one out of the queue. Raises `turn_not_found` where there is none."""
        given = {} if turn_id is None else {"turn_id": turn_id}
        raw = self._client.call("session/interrupt", session_id=self.id, mode=mode, **given)
        return read(InterruptResult, raw, "session/interrupt")

    @overload
    def compact(
        self, instructions: str | None = None, *, key: str | None = None, wait: Literal[True] = True
    ) -> TurnResult: ...
    @overload
    def compact(
        self, instructions: str | None = None, *, key: str | None = None, wait: Literal[False]
    ) -> PromptResult: ...
    def compact(
        self, instructions: str | None = None, *, key: str | None = None, wait: bool = True
    ) -> TurnResult | PromptResult:
        """Have the CLI compact the conversation: a turn of its own, asked for as surely as a prompt."""
        raw = self._prompt("session/compact", {"instructions": instructions, "key": key, "wait": wait})
        return prompted(raw, wait=wait)

    # -- what it says

    def events(self, after_seq: int | None = None, **options: Unpack[EventOptions]) -> Events:
        """Subscribe now, and iterate over its events: from now on, after a seq, or 0 for all of them."""
        return self._client.events(self.id, after_seq, **options)

    def history(self, after_seq: int = 0, *, types: list[str] | None = None, raw: bool = False) -> Iterator[Envelope]:
        """What is stored, after a seq; it ends where the journal ends."""
        while True:
            page = self._ask("session/events", after_seq=after_seq, limit=_PAGE, types=types, raw=raw)
            yield from map(envelope_of, page["events"])
            if page["eof"]:
                return
            after_seq = page["next_seq"] - 1

    def blob(self, blob: str) -> bytes:
        """The whole of a payload that was too large for its event, by the event's `blob`."""
        return self._client.blob(self.id, blob)

    def info(self) -> SessionDetail:
        """Its state, queue, usage, timers and last events."""
        return read(SessionDetail, self._ask("session/get"), "session/get")

    def context_usage(self) -> dict[str, Any]:
        """How full the model's context is, as the CLI says."""
        usage: dict[str, Any] = self._ask("session/context_usage")
        return usage

    def open_approvals(self) -> list[Approval]:
        """Its approvals that wait for an answer now."""
        return self._client.open_approvals(self.id)

    def settle(self, approval: Approval, decision: Decision) -> None:
        """Answer an approval; that somebody was first is no error."""
        self._client.settle(approval, decision)

    # -- what it is

    def set_model(self, model: str) -> None:
        """Use another model from here on."""
        self._ask("session/set_model", model=model)

    def set_permission_mode(self, permission_mode: str) -> None:
        """Use another of the backend's permission modes from here on."""
        self._ask("session/set_permission_mode", permission_mode=permission_mode)

    def set_budget(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        turns: int | None = None,
        wall_s: float | None = None,
    ) -> dict[str, Any] | None:
        """Give it another budget, in the place of the whole one: what is None is not limited. What was used stays used."""
        limits = {"usd": usd, "tokens": tokens, "turns": turns, "wall_s": wall_s}
        budget = {name: value for name, value in limits.items() if value is not None}
        answer: dict[str, dict[str, Any] | None] = self._ask("session/set_budget", budget=budget)
        return answer["budget"]

    def note(self, code: str, message: str, *, data: dict[str, Any] | None = None) -> int:
        """Write a notice of your own into its journal, under a code that begins with `client.`; the notice's seq.

        Asked again after a restart of the daemon, it may stand there twice.
        """
        return int((self._ask("session/note", code=code, message=message, data=data))["seq"])

    def fork(self, *, session_id_new: str | None = None, at_turn: str | None = None) -> Session:
        """A new session with this one's conversation, up to the end of `at_turn` or whole. This one stays as it is."""
        given: Mapping[str, str | None] = {"session_id_new": session_id_new or new_key(), "at_turn": at_turn}
        forked = self._ask("session/fork", **given)
        return Session(self._client, forked["session_id"], forked.get("native_session_id"))

    def close(self) -> None:
        """Close it; a running turn is interrupted first. Its record stays until `delete` or retention."""
        self._ask("session/close")

    def delete(self) -> None:
        """Remove a closed session's record; the CLI's own transcript is not touched."""
        self._client.call("session/delete", session_id=self.id)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, failure: BaseException | None, _trace: object) -> None:
        try:
            if failure is None:
                self.close()
            else:  # which is not to wait for a daemon that is away
                self._client.call("session/close", session_id=self.id)
        except ClisupError as error:
            if failure is None and error.kind not in _GONE:
                raise

    def _ask(self, method: str, /, **params: Any) -> Any:
        return self._client._sure(method, session_id=self.id, **params)

    def _prompt(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in params.items() if value is not None}
        return prompt_surely(
            self._client.path, {"session_id": self.id, **given}, method=method, name=self._client._name
        )
