"""Process of `clisup acp`: stdin and stdout are the connection to the editor."""

from __future__ import annotations

import os
from collections.abc import Callable

import trio

from clisup.client.aio import open_client
from clisup.doors.acp.connection import EditorConnection
from clisup.doors.acp.door import AcpDoor, DoorOptions
from clisup.doors.acp.protocol import error_object
from clisup.doors.log import DoorLog
from clisup.errors import EXIT_OK, ClisupError

__all__ = ["serve_editor"]


def serve_editor(options: DoorOptions, connect: Callable[[], None], log_file: str | None = None) -> int:
    """Serve the editor at stdin and stdout until it closes its end. Return the exit code.

    `connect` makes sure that a daemon runs, and may start one. If that fails, each request gets the reason as its error.
    Raises `WorldError(storage_failed)` if the log cannot be opened.
    """
    return trio.run(_serve, options, connect, DoorLog(log_file))


async def _serve(options: DoorOptions, connect: Callable[[], None], log: DoorLog) -> int:
    # Closing the streams makes the terminal or pipe blocking again, for those who share it.
    async with trio.lowlevel.FdStream(os.dup(0)) as receive, trio.lowlevel.FdStream(os.dup(1)) as send:
        editor = EditorConnection(receive, send, log)
        try:
            await trio.to_thread.run_sync(connect)
            async with open_client(name="clisup-acp") as client:
                await AcpDoor(client, editor, options, log).run()
        except ClisupError as error:
            log.write(f"no daemon: {error}")
            return await _refuse_all(editor, error)
    return EXIT_OK


async def _refuse_all(editor: EditorConnection, error: ClisupError) -> int:
    """Answer each request with the error, until the editor closes its end. An editor shows that, and not the exit code."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(editor.write_queued)
        async for frame in editor.frames():
            if frame.id is not None:
                await editor.refuse(frame.id, error_object(error))
        await editor.flush(1)
        nursery.cancel_scope.cancel()
    return error.exit_code
