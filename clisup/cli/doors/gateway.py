"""`clisup gateway`: the APIs of OpenAI and Anthropic over HTTP."""

from __future__ import annotations

import os
from contextlib import suppress

import click

from clisup.cli.daemon_start import ensure_daemon, no_start_option
from clisup.cli.options import http_options
from clisup.cli.views.terminal import plain
from clisup.errors import EXIT_OK, ConfigurationError
from clisup.locations import socket_for_client

__all__ = ["gateway"]

_PACKAGES = ("hypercorn", "starlette")


@click.command("gateway")
@http_options(7788, "Address behind a reverse proxy.")
@click.option("--print-token", is_flag=True, help="Print the token that programs send, and serve nothing.")
@click.option("--log-file", metavar="FILE", help="Log requests here, and not to stderr. The log has no texts.")
@no_start_option
def gateway(
    port: int | None, bind: str | None, url: str | None, tls_cert: str | None, tls_key: str | None, print_token: bool,
    log_file: str | None, no_start: bool,
) -> int:  # fmt: skip
    """Serve the APIs of OpenAI and Anthropic for programs that know nothing of clisup.

    Each request becomes a turn of the daemon. With an Idempotency-Key, a repeated request runs once, and its answer
    survives the death of this server and of the daemon. The table [gateway] of the configuration names the backends and
    sets defaults of the options. See docs/how-to/gateway.md.

    \b
    Example:
      clisup gateway
      export OPENAI_BASE_URL=http://127.0.0.1:7788/v1 OPENAI_API_KEY=$(clisup gateway --print-token)
    """
    try:
        from clisup.doors.gateway.main import serve_gateway
        from clisup.doors.gateway.settings import gateway_token, settings_of
        from clisup.http.server import check_settings, listen
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise ConfigurationError(
            "the gateway needs packages that are not installed",
            hint="pip install 'clisup[gateway]' into the environment of clisup",
        ) from None
    if print_token:
        print(gateway_token(os.environ))
        return EXIT_OK
    settings = settings_of(os.environ, bind=bind, port=port, url=url, tls_cert=tls_cert, tls_key=tls_key)
    check_settings(settings.http, "docs/how-to/gateway.md")
    ensure_daemon("clisup-gateway", no_start=no_start)
    listener = listen(settings.http, "choose another --port")
    print(plain(f"clisup gateway: {settings.http.origin(listener.getsockname()[1])}/v1"), flush=True)
    with suppress(KeyboardInterrupt):
        serve_gateway(
            settings, gateway_token(os.environ), listener, socket_for_client(os.environ, os.getuid()), log_file
        )
    return EXIT_OK
