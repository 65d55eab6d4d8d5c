"""Settings of the gateway, its token, and the directory of its sessions."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from typing import Literal, NamedTuple

from clisup.client.options import given
from clisup.errors import ConfigurationError
from clisup.host.config_file import ConfigFile
from clisup.host.files import make_private_dir, write_once
from clisup.http.server import HttpSettings
from clisup.locations import config_file, in_home, state_dir_for_client

__all__ = ["GatewaySettings", "gateway_token", "settings_of"]

_TOKEN_BYTES = 32


class GatewaySettings(NamedTuple):
    """Settings of the table `[gateway]`."""

    http: HttpSettings = HttpSettings(port=7788)
    backends: tuple[str, ...] = ()
    allow_subscription: bool = False
    cli_tools: Literal["none", "default"] = "none"
    models: Mapping[str, str] = {}
    cwd: str = ""
    max_requests: int = 256
    max_body_bytes: int = 12 * 1024 * 1024
    tool_timeout_s: float = 600.0
    keep_s: float = 86_400.0


def settings_of(env: Mapping[str, str], **options: str | int | None) -> GatewaySettings:
    """Return the settings of the table, with the given options in their place. Raises `ConfigurationError`."""
    table = ConfigFile(config_file(env), "CLISUP_CONFIG" in env).read().gateway.model_dump()
    paths = {name: in_home(table[name], env) for name in ("tls_cert", "tls_key", "cwd")}
    table |= {**paths, **given(options)}
    http = HttpSettings(**{name: table.pop(name) for name in HttpSettings._fields})
    if not table["backends"]:
        raise ConfigurationError(
            "the gateway serves no backend, because [gateway] backends is empty",
            hint='name them in the configuration: [gateway] backends = ["anthropic-api"] (docs/how-to/gateway.md)',
            key="gateway.backends",
        )
    cwd = table.pop("cwd") or _directory(env, "work")
    return GatewaySettings(http=http, cwd=cwd, backends=tuple(table.pop("backends")), **table)


def gateway_token(env: Mapping[str, str]) -> str:
    """Return the token that programs send. The first call makes it, in a file that only its owner reads."""
    path = os.path.join(_directory(env), "token")
    if not os.path.exists(path):
        write_once(path, f"clisup-{secrets.token_urlsafe(_TOKEN_BYTES)}\n".encode())
    try:
        with open(path, encoding="ascii") as file:
            token = file.read(1024).strip()
    except (OSError, ValueError):
        token = ""
    if len(token) < _TOKEN_BYTES:
        raise ConfigurationError(
            f"cannot read the token of the gateway in {path}", hint="remove the file: the next start makes a new one"
        )
    return token


def _directory(env: Mapping[str, str], *names: str) -> str:
    path = os.path.join(state_dir_for_client(env, os.getuid()), "gateway", *names)
    make_private_dir(path)
    return path
