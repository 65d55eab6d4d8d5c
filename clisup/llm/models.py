"""Models of the daemon's backends, by name.

model = resolve("claude/opus")
print((await model.complete("Say hello.")).text)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from clisup.llm.answers import ModelName, parse_model
from clisup.llm.calls import ModelCalls
from clisup.llm.chat import Chat, ChatOptions, LanguageModel, Sampling, checked_model, labels_of
from clisup.llm.failures import LLMError
from clisup.llm.fallbacks import FALLBACK_ON, ModelChain, OnFallback, OnRetry, RetryPolicy
from clisup.llm.registry import chain_of
from clisup.llm.sessions.session_chat import SessionSettings, end_sessions, has_parked, open_chat


@dataclass(frozen=True, slots=True)
class Model(ModelCalls):
    """Model of a backend. Made by `resolve`. It holds no connection, so programs may share and keep it.

    Each chat is a session of its own. `defaults` fill options that a chat leaves out; labels and session params add up.
    `behind` is the model that answers for a registered name.
    """

    name: ModelName
    settings: SessionSettings = field(default_factory=SessionSettings)
    defaults: ChatOptions = field(default_factory=ChatOptions)
    behind: LanguageModel | None = None

    def _chat(self, options: ChatOptions) -> AbstractAsyncContextManager[Chat]:
        merged = _merged(self.defaults, options)
        return open_chat(self.name, merged, self.settings) if self.behind is None else self.behind.chat(merged)

    def has_parked(self, options: ChatOptions) -> bool:
        """Return whether a chat of this model waits for results of the tool calls at the end of the history."""
        return self.behind is None and has_parked(self.name, _merged(self.defaults, options), self.settings)

    async def end_sessions(self, labels: Mapping[str, str]) -> int:
        """End the open sessions of a program that died, by labels, on any backend. Return their number."""
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
    """Return the model "backend/model", such as "claude/opus". A backend alone means its default model.

    The daemon is not asked yet. `socket` is the daemon's socket, if not the usual one. `cwd` is the CLI's directory; the default
    is the program's own. `keep=True` keeps sessions for `clisup logs`; the end of a chat deletes others.
    While the account is limited, `when_limited="wait"` waits, however long; "refuse" raises `RateLimited`.
    `session` are further params of `session/new` (docs/protocol.md): `permission_mode`, `timeouts`, `mode` ...

    Names of `register` come first. A name of several models, or of a model of another kind, returns a `Model` that opens chats
    of those. Raises `UsageError` for a malformed name.
    """
    defaults = ChatOptions(system=system, cwd=cwd, labels=labels_of(labels), session=session, sampling=sampling)
    settings = SessionSettings(socket, keep, when_limited)
    chain = chain_of(name) if isinstance(name, str) else None
    if chain is None or (len(chain) == 1 and isinstance(chain[0], str)):
        return Model(parse_model(name if chain is None else chain[0]), settings, defaults)  # type: ignore[arg-type]
    models = [Model(parse_model(part), settings) if isinstance(part, str) else part for part in chain]
    return Model(ModelName(str(name)), settings, defaults, models[0] if len(models) == 1 else ModelChain(models))


def as_model(model: LanguageModel | str) -> LanguageModel:
    """Return the model of this name, or the model itself. Raises `UsageError` for other values."""
    return resolve(model) if isinstance(model, str) else checked_model(model)


def models_of(model: LanguageModel | str) -> tuple[LanguageModel, ...]:
    """Return the model, or all models of a registered name."""
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


class Client(ModelChain):
    """Model with fallbacks. `primary` and `fallbacks` are names, or models of any kind.

        client = Client("claude/opus", fallbacks=["codex"], on_fallback=print)
        async with client.chat() as chat: ...

    Each chat begins with the primary model. If that model fails (`fallback_on`), the next one gets the whole conversation so far
    and keeps it until the end of the chat. `on_retry` and `on_fallback` are called before a retry or fallback, and may be async.
    After a tool call nothing is repeated. Raises the last model's error, and errors with `side_effects` at once.
    """

    def __init__(
        self,
        primary: str | LanguageModel,
        fallbacks: str | Sequence[str | LanguageModel] = (),
        *,
        retry: RetryPolicy | None = None,
        on_retry: OnRetry | None = None,
        on_fallback: OnFallback | None = None,
        fallback_on: tuple[type[LLMError], ...] = FALLBACK_ON,
    ) -> None:
        others = (fallbacks,) if isinstance(fallbacks, str) else fallbacks
        models = [model for part in (primary, *others) for model in models_of(part)]
        super().__init__(models, retry=retry, on_retry=on_retry, on_fallback=on_fallback, fallback_on=fallback_on)
