"""Models of the daemon's backends, by name.

model = resolve("claude/opus")
print((await model.complete("Say hello.")).text)
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from clisup.llm.calls import ModelCalls
from clisup.llm.chain import ModelChain
from clisup.llm.chat import Chat, ChatOptions, LanguageModel, checked_model, labels_of
from clisup.llm.names import ModelName, parse_model
from clisup.llm.orphans import end_sessions
from clisup.llm.registry import chain_of
from clisup.llm.sampling import Sampling
from clisup.llm.sessions import SessionSettings, has_parked, open_chat

__all__ = ["Model", "as_model", "models_of", "resolve"]


@dataclass(frozen=True, slots=True)
class Model(ModelCalls):
    """A model of a backend. Made by `resolve`; it holds no connection, so it may be shared and kept. Each chat is a session of its own.

    `defaults` are what each chat is opened with, where its own options do not say otherwise; labels and session params add up.
    `behind` is what answers for a registered name, in the place of a session of its own.
    """

    name: ModelName
    settings: SessionSettings = field(default_factory=SessionSettings)
    defaults: ChatOptions = field(default_factory=ChatOptions)
    behind: LanguageModel | None = None

    def _chat(self, options: ChatOptions) -> AbstractAsyncContextManager[Chat]:
        merged = _merged(self.defaults, options)
        return open_chat(self.name, merged, self.settings) if self.behind is None else self.behind.chat(merged)

    def has_parked(self, options: ChatOptions) -> bool:
        """Return whether a chat of this model waits for results of the tool calls at which the history stops."""
        return self.behind is None and has_parked(self.name, _merged(self.defaults, options), self.settings)

    async def end_sessions(self, labels: Mapping[str, str]) -> int:
        """End what a program that died has left: all open sessions with these labels, of any backend. Gives how many."""
        if self.behind is not None:
            end = getattr(self.behind, "end_sessions", None)
            return 0 if end is None else int(await end(labels))
        return await end_sessions(labels, socket=self.settings.socket, keep=self.settings.keep)

    def __str__(self) -> str:
        return str(self.name)


def resolve(
    name: str | ModelName,
    *,
    socket: str | None = None,
    system: str | None = None,
    cwd: str | None = None,
    keep: bool = False,
    when_limited: Literal["wait", "refuse"] = "refuse",
    labels: Mapping[str, str] | None = None,
    sampling: Sampling | None = None,
    **session: Any,
) -> Model:
    """The model "backend/model", as in "claude/opus"; a backend alone is the model that it takes by itself.

    Nothing is asked of the daemon yet. `socket` is where it is, if not in its usual place. `cwd` is the directory that the CLI
    works in, else the program's own. `keep=True` leaves sessions for `clisup logs`, else each is deleted at its chat's end.
    While the account is limited, `when_limited="wait"` waits for its end, however long; else `RateLimited` is raised.
    `session` are further params of `session/new` (docs/protocol.md): `permission_mode`, `timeouts`, `mode` ...

    A name of `register` is looked up first. One that stands for several models, or for a model that was made elsewhere, gives a
    `Model` that opens chats of those. Raises `UsageError` for a name of another form.
    """
    defaults = ChatOptions(system=system, cwd=cwd, labels=labels_of(labels), session=session, sampling=sampling)
    settings = SessionSettings(socket, keep, when_limited)
    chain = chain_of(name) if isinstance(name, str) else None
    if chain is None or (len(chain) == 1 and isinstance(chain[0], str)):
        return Model(parse_model(name if chain is None else chain[0]), settings, defaults)  # type: ignore[arg-type]
    models = [Model(parse_model(part), settings) if isinstance(part, str) else part for part in chain]
    return Model(ModelName(str(name)), settings, defaults, models[0] if len(models) == 1 else ModelChain(models))


def as_model(model: LanguageModel | str) -> LanguageModel:
    """The model of this name, or the model itself. Raises `UsageError` for what is none."""
    return resolve(model) if isinstance(model, str) else checked_model(model)


def models_of(model: LanguageModel | str) -> tuple[LanguageModel, ...]:
    """Return the model, or all models that a registered name stands for."""
    chain = chain_of(model) if isinstance(model, str) else None
    return tuple(as_model(part) for part in chain) if chain is not None else (as_model(model),)


def _merged(defaults: ChatOptions, options: ChatOptions) -> ChatOptions:
    return replace(
        options,
        system=defaults.system if options.system is None else options.system,
        cwd=options.cwd or defaults.cwd,
        labels={**defaults.labels, **options.labels},
        session={**defaults.session, **options.session},
        sampling=defaults.sampling if options.sampling is None else options.sampling.over(defaults.sampling),
        cli_tools=options.cli_tools or defaults.cli_tools,
    )
