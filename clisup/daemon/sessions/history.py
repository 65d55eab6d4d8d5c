"""History of session/new: a transcript in the CLI's own format, resumed by the session's first turn."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import msgspec

from clisup.backends.transcripts import Seed, SeedRules
from clisup.config.session_spec import SessionSpec
from clisup.daemon.backends import Backend
from clisup.errors import UsageError, WorldError
from clisup.model.events import Actor, SessionSeeded
from clisup.model.prompts.history import open_calls
from clisup.store.session_dir import SessionDir
from clisup.store.transcripts import CopyInProgress, find_transcript, write_session
from clisup.wire.params import SessionNewParams

__all__ = ["Seeding", "check_history_of"]


def check_history_of(params: SessionNewParams, backend: Backend, *, max_image_bytes: int) -> None:
    """Refuse a history that the backend does not support. Raises `UsageError`: invalid_params, unsupported."""
    if not params.history:
        return
    if params.resume_native_id is not None:
        raise UsageError(
            "history and resume_native_id exclude each other",
            hint="give only one of them",
            param="history",
        )
    if (called := open_calls(params.history)) and not backend.adapter.capabilities.caller_tools:
        raise UsageError(
            f"the last message of the history calls a tool ({called[0]!r}) and has no result",
            hint="add the result and the model's answer to it, or use a backend with caller_tools (backend/list)",
            param="history",
        )
    images = [block for message in params.history for block in message.images]
    if images and not backend.adapter.capabilities.images:
        raise UsageError(
            f"backend {backend.name!r} takes no images in a history ({backend.adapter.kind} has no such feature)",
            kind="unsupported",
            hint="leave them out, or use another backend: docs/backends/README.md says which take images",
            param="history",
        )
    if (size := max((image.size for image in images), default=0)) > max_image_bytes:
        raise UsageError(
            f"the history has an image of {size} bytes, but daemon.max_image_bytes is {max_image_bytes}",
            hint="send a smaller image, or raise daemon.max_image_bytes",
            param="history",
            limit="max_image_bytes",
            value=max_image_bytes,
        )


class Seeding:
    """Writer of a session's history. `write` blocks: call in a thread."""

    def __init__(self, params: SessionNewParams, backend: Backend, session_id: str, actor: Actor | None) -> None:
        self._params, self._backend, self._actor = params, backend, actor
        self._native = backend.adapter.capabilities.native_id_prefix + session_id

    def with_transcript(self, spec: SessionSpec) -> SessionSpec:
        """Return the spec with the transcript's id and origin."""
        seeded = SessionSeeded(messages=len(self._history), native_session_id=self._native, actor=self._actor)
        fields: dict[str, Any] = msgspec.to_builtins(seeded)
        del fields["type"]
        return spec.model_copy(update={"resume_native_id": self._native, "seeded": fields})

    @property
    def _history(self) -> list[Any]:
        return self._params.history or []

    def write(self, spec: SessionSpec, directory: SessionDir, record: Callable[[], None]) -> CopyInProgress:
        """Write the transcript, then the session's record. Without the record no session exists.

        Raises `UsageError(session_exists)`, `WorldError`: backend_unavailable, storage_failed. An error leaves nothing
        behind.
        """
        env = self._backend.own_environment(self._params.env or {})
        seed = Seed(self._history, self._native, os.path.realpath(spec.cwd), spec.model, spec.created_at)
        rules, path = self._place(seed, env)
        if find_transcript(self._backend.adapter.transcript_pattern(self._native, env)) is not None:
            raise UsageError(
                f"cannot open session {spec.session_id}: the CLI has a transcript of this id",
                kind="session_exists",
                hint="choose another id, or continue that transcript: resume_native_id",
            )
        return write_session(directory, path, rules.lines(seed), record)

    def _place(self, seed: Seed, env: Any) -> tuple[SeedRules, str]:
        adapter = self._backend.adapter
        rules = adapter.seed if adapter.capabilities.history else None
        path = rules.path(seed, env) if rules is not None else None
        if rules is None or path is None:
            raise WorldError(
                f"cannot write a history for backend {self._backend.name!r}: the place of its CLI's sessions is unknown",
                kind="backend_unavailable",
                hint="pass HOME through to the CLI: clisup backend env",
            )
        return rules, path
