"""Commands of the door itself: `/fork`, `/budget`, `/status`, `/handover` and `/model`. `/compact` is a turn."""

from __future__ import annotations

import trio

from clisup.client.aio_session import AsyncSession
from clisup.client.handover import HandoverDone, hand_over
from clisup.client.sync import Client
from clisup.doors.acp.prompts import EditorCommand
from clisup.errors import ClisupError, UsageError

__all__ = ["run_command"]


async def run_command(session: AsyncSession, command: EditorCommand) -> str:
    """Carry out a command, and return its words for the user. A refusal is a text, too."""
    try:
        return await _COMMANDS[command.name](session, command.words)
    except ClisupError as error:
        return f"/{command.name}: {error}"


async def _fork(session: AsyncSession, _words: str) -> str:
    forked = await session.fork()
    return f"Session {forked.id} has this conversation. Open it from the list of sessions."


async def _budget(session: AsyncSession, words: str) -> str:
    if words:
        await session.set_budget(usd=_amount(words))
    budget = (await session.info()).budget
    if budget is None:
        return "This session has no budget. `/budget 5` limits its cost to 5 US dollars."
    return "The budget of this session:\n" + "\n".join(f"- {name}: {value}" for name, value in budget.items())


def _amount(words: str) -> float:
    try:
        return float(words.removeprefix("$"))
    except ValueError:
        raise UsageError(f"{words[:40]!r} is not an amount", hint="such as 5, or 0.50") from None


async def _status(session: AsyncSession, _words: str) -> str:
    info = await session.info()
    cost = "unknown" if info.cost_usd is None else f"{info.cost_usd:.4f} US dollars ({info.cost_source})"
    facts = {
        "session": info.session_id, "backend": info.backend, "model": info.model or "the backend's default",
        "directory": info.cwd, "state": info.state, "turns": info.turns, "approvals": info.approvals,
        "input tokens": info.tokens.total_input_tokens, "output tokens": info.tokens.output_tokens, "cost": cost,
        "clients that follow": info.subscribers,
    }  # fmt: skip
    return "\n".join(f"- {name}: {value}" for name, value in facts.items() if value is not None)


async def _handover(session: AsyncSession, words: str) -> str:
    backend, _, prompt = words.partition(" ")
    if not backend:
        raise UsageError("name the backend that goes on", hint="such as `/handover codex Go on with the tests.`")
    done = await trio.to_thread.run_sync(_hand_over, session.id, backend, prompt.strip() or None)
    notes = "".join(f"\n- Not handed over: {note}" for note in done.missing)
    return f"Session {done.session_id} of {backend} has this conversation. Open it from the list of sessions.{notes}"


def _hand_over(session_id: str, backend: str, prompt: str | None) -> HandoverDone:
    with Client.connect(name="clisup-acp") as client:
        return hand_over(client, session_id, backend, prompt)


async def _model(session: AsyncSession, words: str) -> str:
    if not words:
        return (
            f"The model is {(await session.info()).model or 'the default of the backend'}. `/model NAME` uses another."
        )
    await session.set_model(words)
    return f"The model is now {words}."


_COMMANDS = {"fork": _fork, "budget": _budget, "status": _status, "handover": _handover, "model": _model}
