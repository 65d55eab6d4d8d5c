"""Process of the pages: their tasks beside the HTTP server, and login links."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

import trio

from clisup.http.server import HttpSettings, serve
from clisup.locations import state_dir_for_client
from clisup.web.access.tokens import TokenBook
from clisup.web.app import make_app
from clisup.web.boxes import BoxLinks
from clisup.web.link import PageLink
from clisup.web.push.delivery import PushSender, contact_of, push_key
from clisup.web.push.watch import PushWatch

__all__ = ["book_of", "login_link", "serve_pages"]


def book_of(env: Mapping[str, str]) -> TokenBook:
    """Return the tokens of this user."""
    return TokenBook(os.path.join(state_dir_for_client(env, os.getuid()), "web"))


def login_link(origin: str, code: str) -> str:
    """Return the address that signs a browser in."""
    return f"{origin}/login?code={code}"


async def serve_pages(
    settings: HttpSettings,
    listener: socket.socket,
    daemon: str | None,
    book: TokenBook,
    *,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until SIGTERM or SIGINT. `daemon` is the path of its socket; `ready` is called in a
    thread once browsers may connect."""
    link, boxes = PageLink(daemon), BoxLinks()
    port = listener.getsockname()[1]
    sender = PushSender(push_key(os.path.dirname(book.path)), contact_of(settings.origin(port)))
    app = make_app(link, book, settings.place(port), boxes, sender)
    # The socket listens already. A `$BROWSER` may run until the user closes it.
    told = partial(trio.to_thread.run_sync, ready, abandon_on_cancel=True)
    await serve(app, settings, listener, [link.run, boxes.run, PushWatch(link, book, sender).run, told], _note)


def _note(text: str) -> None:
    print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text, file=sys.stderr, flush=True)
