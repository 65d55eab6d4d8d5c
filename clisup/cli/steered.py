"""Turn that takes a steered prompt: the steered turn, or a turn right after it. The CLI reports which."""

from __future__ import annotations

from clisup.cli.failure import TurnEnded
from clisup.client.raw import JsonObject
from clisup.client.sync import Client
from clisup.errors import EXIT_TURN_FAILED

__all__ = ["turn_that_took"]

_TYPES = ["prompt_accepted", "turn_started", "turn_completed", "notice"]


def turn_that_took(client: Client, session_id: str, accepted: JsonObject) -> str:
    """Wait until the CLI has taken the prompt, and return the id of the turn. Raises `TurnEnded` if the CLI dropped the prompt.

    `accepted` is the answer of `session/prompt`. A CLI that names no prompts takes it in the steered turn.
    """
    prompt_id, steered = accepted["prompt_id"], accepted["turn_id"]
    with client.follow(session_id, accepted["seq"], types=_TYPES) as events:
        for event in events:
            named = event.get("prompt_ids")
            if named is not None and prompt_id in named:
                return str(event["turn_id"])
            if event["type"] == "prompt_accepted" and event.get("prompt_id") == prompt_id:
                return str(event["turn_id"])  # it has a turn of its own in the queue
            if event["type"] == "notice" and event["code"] == "steer_dropped" and prompt_id in event["message"]:
                raise TurnEnded(f"the CLI did not take the prompt: {event['message']}", code=EXIT_TURN_FAILED,
                                hint=f"send it again: clisup run --session {session_id}")  # fmt: skip
            if event["type"] == "turn_completed" and event["turn_id"] == steered and named is None:
                return str(steered)
    raise AssertionError("a follower never ends by itself")
