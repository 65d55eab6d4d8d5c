"""`clisup web`: pages for a browser, and the tokens of browsers."""

from __future__ import annotations

import json
import os
import sys
import webbrowser
from datetime import UTC, datetime
from typing import TYPE_CHECKING, cast

import click

from clisup.cli.daemon_start import ensure_daemon, no_start_option
from clisup.cli.failure import usage
from clisup.cli.options import CommandGroup, http_options, json_option
from clisup.cli.views.terminal import plain, print_table
from clisup.client.options import given
from clisup.errors import EXIT_OK, ConfigurationError
from clisup.locations import config_file, in_home, socket_for_client

if TYPE_CHECKING:
    from clisup.http.server import HttpSettings
    from clisup.web.access.rules import Role

__all__ = ["web"]

_ROLES = ("observe", "approve", "drive")
_NAME = "clisup-web"
_ROLE = click.option("--role", type=click.Choice(_ROLES), default="drive", show_default=True,
                     help="What the browser of the link may do. Each role may do what the ones before it may.")  # fmt: skip


@click.group("web", cls=CommandGroup, invoke_without_command=True)
@http_options(7777, "Address of the pages behind a reverse proxy.")
@click.option("--open", "open_", is_flag=True, help="Open the pages in a browser here.")
@click.option("--print-link", is_flag=True, help="Print a login link and its QR code.")
@_ROLE
@no_start_option
@click.pass_context
def web(
    ctx: click.Context, port: int | None, bind: str | None, url: str | None, tls_cert: str | None, tls_key: str | None,
    open_: bool, print_link: bool, role: str, no_start: bool,
) -> int:  # fmt: skip
    """Serve pages that show sessions, answer approvals and send prompts.

    Only this machine reaches the pages, unless --bind says otherwise. A browser signs in with a link that works once,
    for 10 minutes. If the pages are served already, --open and --print-link only make a link. The table [web] of the
    configuration sets defaults of the options. See docs/how-to/web.md.

    \b
    Example:
      clisup web --open
      clisup web --print-link --role approve
      clisup web tokens list
    """
    if ctx.invoked_subcommand is not None:
        return EXIT_OK
    _need_extra()
    from clisup.http.server import check_settings, is_served

    settings = _settings(bind=bind, port=port, url=url, tls_cert=tls_cert, tls_key=tls_key)
    check_settings(settings, "docs/how-to/web.md")
    if (open_ or print_link) and is_served(settings):
        _announce(settings, settings.port, role, open_=open_, print_link=print_link)
        return EXIT_OK
    ensure_daemon(_NAME, no_start=no_start)
    return _serve(settings, role, open_=open_, print_link=print_link)


def _settings(**options: str | int | None) -> HttpSettings:
    """Return the settings of the table [web], with the given options in their place. Raises `ConfigurationError`."""
    from clisup.host.config_file import ConfigFile
    from clisup.http.server import HttpSettings

    table = ConfigFile(config_file(os.environ), "CLISUP_CONFIG" in os.environ).read().web.model_dump()
    paths = {name: in_home(table[name], os.environ) for name in ("tls_cert", "tls_key")}
    return HttpSettings(**{**table, **paths, **given(options)})


def _serve(settings: HttpSettings, role: str, *, open_: bool, print_link: bool) -> int:
    import trio

    from clisup.http.server import listen
    from clisup.web.server import book_of, serve_pages

    listener = listen(
        settings, "choose another --port; clisup web --print-link makes a link for a server that runs already"
    )
    port = listener.getsockname()[1]
    print(plain(f"clisup web: {settings.origin(port)}"), flush=True)

    def ready() -> None:
        if open_ or print_link:
            _announce(settings, port, role, open_=open_, print_link=print_link)
        else:
            print("clisup web --print-link signs a browser in", flush=True)

    daemon = socket_for_client(os.environ, os.getuid())
    trio.run(lambda: serve_pages(settings, listener, daemon, book_of(os.environ), ready=ready))
    return EXIT_OK


def _announce(settings: HttpSettings, port: int, role: str, *, open_: bool, print_link: bool) -> None:
    if open_:
        _show_link(settings.origin(port), f"browser on {os.uname().nodename}"[:60], role, browser=True)
    if print_link:
        _show_link(settings.origin(port), "link", role)


def _show_link(origin: str, name: str, role: str, *, browser: bool = False) -> None:
    from clisup.web.server import book_of, login_link

    link = login_link(origin, book_of(os.environ).add_link(name, cast("Role", role)))
    if browser and webbrowser.open(link):
        return
    import segno

    print(f"This link signs one browser in, for 10 minutes, with the role {role}:\n{link}", flush=True)
    if sys.stdout.isatty():
        segno.make(link, error="l").terminal(compact=True)


def _need_extra() -> None:
    try:
        import http_ece  # type: ignore[import-untyped]
        import hypercorn
        import jinja2
        import py_vapid  # type: ignore[import-untyped]
        import segno
        import starlette
    except ImportError:
        raise ConfigurationError(
            "the pages need packages that are not installed",
            hint="pip install 'clisup[web]' into the environment of clisup",
        ) from None
    assert http_ece and hypercorn and jinja2 and py_vapid and segno and starlette


@web.group("tokens", cls=CommandGroup)
def tokens() -> None:
    """List, add and revoke the tokens of browsers.

    \b
    Example:
      clisup web tokens list
      clisup web tokens add phone --role approve
      clisup web tokens revoke 3f2a9c1e
    """


@tokens.command("list")
@json_option("Print one JSON object a line.")
def list_(as_json: bool) -> int:
    """List the browsers that are signed in.

    \b
    Example:
      clisup web tokens list
      clisup web tokens list --json | jq -r .name
    """
    from clisup.web.server import book_of

    found = book_of(os.environ).tokens()
    if as_json:
        for token in found:
            print(json.dumps({**token._asdict(), "created": _day(token.created), "expires": _day(token.expires)}))
    elif not found:
        print("No browser is signed in. Make a link: clisup web --print-link")
    else:
        rows = [[token.id, token.name, token.role, _day(token.created), _day(token.expires)] for token in found]
        print_table(["ID", "NAME", "ROLE", "SINCE", "UNTIL"], rows)
    return EXIT_OK


@tokens.command("add")
@click.argument("name")
@_ROLE
@click.option(
    "--url", metavar="URL", help="Address of the pages, if the table [web] of the configuration does not say it."
)
def add(name: str, role: str, url: str | None) -> int:
    """Print a login link for a browser that is listed as NAME, with the QR code on a terminal.

    \b
    Example:
      clisup web tokens add phone --role approve --url https://box.example.ts.net
    """
    _need_extra()
    try:
        settings = _settings(url=url)
        origin = settings.origin(settings.port)
    except ValueError:
        raise usage("this is no address of a page", hint="--url https://host.example") from None
    if not 0 < len(name) <= 40:
        raise usage("a name has 1 to 40 characters")
    _show_link(origin, name, role)
    return EXIT_OK


@tokens.command("revoke")
@click.argument("id_", metavar="ID")
def revoke(id_: str) -> int:
    """Sign out the browser with this ID, at once.

    \b
    Example:
      clisup web tokens revoke 3f2a9c1e
    """
    from clisup.web.server import book_of

    token = book_of(os.environ).revoke(id_)
    if token is None:
        raise usage("no token has this id", hint="clisup web tokens list")
    print(plain(f"signed out: {token.name}"))
    return EXIT_OK


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
