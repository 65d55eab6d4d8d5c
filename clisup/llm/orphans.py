"""Sessions of a program that died: they are the daemon's, so what runs in them goes on. Whoever takes the work over ends them first."""

from __future__ import annotations

from collections.abc import Mapping

from clisup.client.aio import open_client
from clisup.errors import ClisupError
from clisup.llm.refusals import as_llm_errors

__all__ = ["end_sessions"]


async def end_sessions(labels: Mapping[str, str], *, socket: str | None, keep: bool) -> int:
    """Close the open sessions with all of these labels, which ends their turns, and delete them unless `keep`. Gives how many.

    Raises `LLMError`s where the daemon cannot be asked.
    """
    ended = 0
    with as_llm_errors():
        async with open_client(socket, name="clisup-llm") as client:
            for found in await client.sessions(labels=dict(labels)):
                session = client.attach(found.session_id)
                try:
                    await session.close()
                    if not keep:
                        await session.delete()
                except ClisupError as error:
                    if error.kind not in ("session_not_found", "session_closed"):
                        raise
                ended += 1
    return ended
