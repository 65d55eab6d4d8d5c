"""`/compact` of a live process: the frames of claude 2.1.329. The demo has no context, so its summary says nothing new."""

from __future__ import annotations

from clisup.demo.session import Session
from clisup.demo.turn import Turn
from clisup.stream_json.frames import Frame

__all__ = ["compact"]

_NOTHING = "Error: No messages to compact"
_SUMMARY = "This session is being continued from a previous conversation that ran out of context. Summary:\n"


def compact(turn: Turn, session: Session, init: Frame) -> None:
    """Play the command to its result; `init` is the turn's init frame, which comes behind the work."""
    frames, prompts = turn.frames, session.prompts
    if not prompts:
        turn.send(init)
        said = f"<local-command-stderr>{_NOTHING}</local-command-stderr>"
        turn.wire.frame(frames.synthetic(_NOTHING, local_command_source=said))  # it names no message
    else:
        turn.send(frames.system("status", status="compacting"))
        turn.send(frames.system("status", status=None, compact_result="success"))
        turn.send(init)
        before = sum(-(-len(prompt) // 4) for prompt in prompts)
        metadata = {"trigger": "manual", "pre_tokens": before, "post_tokens": min(before, 25)}
        turn.send(frames.system("compact_boundary", compact_metadata=metadata))
        turn.send({**frames.replayed(f"{_SUMMARY}{len(prompts)} prompts."), "isReplay": False, "isSynthetic": True})
        turn.send(frames.replayed("<local-command-stdout>Compacted </local-command-stdout>"))
    turn.finish(subtype="success", is_error=False, result="", local_command="compact")
