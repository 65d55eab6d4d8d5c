"""The gateway's list of models: providers are asked at the same time, and one that fails is left alone for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from clisup.client.aio import AsyncClient
from clisup.doors.gateway.models import FAILED_S, LIST_S, ModelBook
from clisup.doors.gateway.settings import GatewaySettings
from clisup.errors import WorldError


class Providers:
    """A daemon with two silent providers, one that refuses, and one that answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def backends(self) -> list[Any]:
        return [SimpleNamespace(name=name, kind="openai-api", capabilities={}) for name in ("a", "b", "c", "good")]

    async def models(self, backend: str) -> list[str]:
        self.asked.append(backend)
        if backend == "c":
            raise WorldError("refused", kind="backend_unavailable")
        if backend != "good":
            await trio.sleep_forever()
        return ["m"]


@pytest.mark.trio
async def test_silent_providers_are_waited_for_together_and_not_again_for_a_minute(autojump_clock: MockClock) -> None:
    providers = Providers()
    book = ModelBook(cast("GatewaySettings", SimpleNamespace(backends=("a", "b", "c", "good"), models={})))
    began = trio.current_time()
    names = await book.names(cast("AsyncClient", providers))
    assert names == ["a", "b", "c", "good", "good/m"] and trio.current_time() - began == LIST_S
    assert sorted(providers.asked) == ["a", "b", "c", "good"]
    assert await book.names(cast("AsyncClient", providers)) == names and trio.current_time() - began == LIST_S
    await trio.sleep(FAILED_S)
    await book.names(cast("AsyncClient", providers))
    assert sorted(providers.asked[4:]) == ["a", "b", "c"]
