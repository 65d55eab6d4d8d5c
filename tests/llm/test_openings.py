"""Chats that are cancelled while they open, on a real daemon: nothing of them stays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from harness import Harness, until

from clisup.client.aio import AsyncClient
from clisup.llm.conversation.conversation import Conversation
from clisup.llm.failures import InvalidRequest
from clisup.llm.models import resolve


async def test_a_session_whose_opening_was_cancelled_is_closed_when_it_is_there(
    serve: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cancellation comes right after the request was sent, at several moments of its being carried out."""
    daemon, call = serve(), AsyncClient.call
    to_cancel: list[tuple[trio.CancelScope, int]] = []

    async def sent(self: AsyncClient, method: str, /, **params: Any) -> Any:
        if method != "session/new" or not to_cancel:
            return await call(self, method, **params)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel, *to_cancel.pop())
            return await call(self, method, **params)

    monkeypatch.setattr(AsyncClient, "call", sent)
    model = resolve("demo", socket=daemon.socket, cwd=str(daemon.cwd))
    with trio.fail_after(90):
        async with Conversation(model) as conversation:
            for pauses in range(12):
                with trio.CancelScope() as scope:
                    to_cancel.append((scope, pauses))
                    await conversation.send("@stall")
            assert (await conversation.send("Hi")).text == "You said: Hi"
    until(lambda: not daemon.leftovers(), "a process lives")
    assert daemon.call("session/list")["sessions"] == []
    assert daemon.call("session/list", state="closed")["sessions"] == []


async def test_a_program_whose_directory_is_gone_is_told_so(
    serve: Callable[..., Harness], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = serve()
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    model = resolve("demo", socket=daemon.socket)
    with trio.fail_after(90):
        with pytest.raises(InvalidRequest, match="the working directory does not exist any more; give cwd="):
            await model.complete("Hi")
        assert (await model.complete("Hi", cwd=str(daemon.cwd))).text == "You said: Hi"


async def _cancel(scope: trio.CancelScope, pauses: int) -> None:
    for _ in range(pauses):
        await trio.lowlevel.checkpoint()
    scope.cancel()
