"""Models that the gateway serves: names of programs to backends, and the list of them."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import NamedTuple

import trio

from clisup.client.aio import AsyncClient
from clisup.client.raw import JsonObject
from clisup.doors.gateway.failures import refused
from clisup.doors.gateway.settings import GatewaySettings
from clisup.errors import ClisupError
from clisup.llm.answers import ModelName
from clisup.policy.vendor_terms import TERMS, TERMS_DATE, logs_in_by_key

__all__ = ["ModelBook", "ServedModel"]

FRESH_S = 5.0
"""Seconds for which the daemon's answer about its backends is used again."""

MODELS_FRESH_S = 300.0
"""Seconds for which a provider's list of models is used again."""

LIST_S = 10.0
"""Seconds that the list of models waits for a provider. After them it has the backend's own name only."""

FAILED_S = 60.0
"""Seconds in which a provider that gave no list is not asked again."""

MAX_LISTED = 1000


class ServedModel(NamedTuple):
    """Model of a request: its backend and that backend's features."""

    name: ModelName
    can: JsonObject


class ModelBook:
    """Backends of the daemon that the settings name, and their models."""

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._backends: tuple[float, dict[str, tuple[str, JsonObject]]] = (-inf, {})
        self._models: dict[str, tuple[float, list[str]]] = {}
        self._by_key: dict[str, bool] = {}

    async def find(self, client: AsyncClient, model: str) -> ServedModel:
        """Return a model by the name in a request. Raises `GatewayError`: unknown, or not to be served."""
        wanted = self._settings.models.get(model, model)
        backend, _, rest = wanted.partition("/")
        if backend not in self._settings.backends:
            raise refused(f"the model {model[:128]!r} is not served; GET /v1/models lists those that are", "model",
                          kind="model_not_found")  # fmt: skip
        known = await self._known(client)
        if backend not in known:
            raise refused(f"the daemon has no backend {backend!r}", "model", kind="backend_not_found")
        kind, can = known[backend]
        await self._check_terms(client, backend, kind)
        if self._settings.cli_tools == "none" and not can.get("cli_tools"):
            raise refused(
                f"the tools of {backend} cannot be switched off; serve it only with [gateway] cli_tools = \"default\"",
                "model", kind="permission_denied",
            )  # fmt: skip
        return ServedModel(ModelName(backend, rest or None), can)

    async def _check_terms(self, client: AsyncClient, backend: str, kind: str) -> None:
        if self._settings.allow_subscription:
            return
        if backend not in self._by_key:
            env = await client.backend_env(backend)
            there = {entry.name for entry in (*env.kept, *env.set)}
            self._by_key[backend] = logs_in_by_key(kind, env.keys, there)
        if not self._by_key[backend]:
            terms = TERMS.get(kind)
            told = f" ({terms.page}, read {TERMS_DATE}: {terms.words})" if terms else ""
            raise refused(
                f"{backend} may use the login of a subscription, which [gateway] allow_subscription does not allow{told}",
                "model", kind="permission_denied",
            )  # fmt: skip

    async def names(self, client: AsyncClient) -> list[str]:
        """Return all names: backends, their providers' models, and those of the settings."""
        known = await self._known(client)
        served = [name for name in self._settings.backends if name in known]
        models: dict[str, list[str]] = {}

        async def ask(backend: str) -> None:
            models[backend] = await self._of_provider(client, backend, known)

        async with trio.open_nursery() as nursery:
            for backend in served:
                nursery.start_soon(ask, backend)
        found = dict.fromkeys(served)
        for backend in served:
            found |= dict.fromkeys(f"{backend}/{model}" for model in models[backend])
        return [*self._settings.models, *found][:MAX_LISTED]

    async def _of_provider(
        self, client: AsyncClient, backend: str, known: dict[str, tuple[str, JsonObject]]
    ) -> list[str]:
        if not known[backend][0].endswith("-api"):
            return []
        until, models = self._models.get(backend, (-inf, []))
        if trio.current_time() >= until:
            fresh_s = FAILED_S
            with trio.move_on_after(LIST_S), suppress(ClisupError):
                models, fresh_s = await client.models(backend), MODELS_FRESH_S
            self._models[backend] = trio.current_time() + fresh_s, models
        return models

    async def _known(self, client: AsyncClient) -> dict[str, tuple[str, JsonObject]]:
        at, known = self._backends
        if not known or trio.current_time() - at >= FRESH_S:
            known = {info.name: (info.kind, info.capabilities) for info in await client.backends()}
            self._backends = trio.current_time(), known
        return known
