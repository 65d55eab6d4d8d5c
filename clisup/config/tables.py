"""Tables of the configuration that the daemon only checks: processes beside the daemon read them."""

# Not `from __future__ import annotations`: pydantic would compile and evaluate each annotation at every start.

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _whole(path: str) -> str:
    if path and not path.startswith(("/", "~/")):
        raise ValueError(
            "Input should be an absolute path, or begin with ~/: the daemon and each client work elsewhere"
        )
    return path


Place = Annotated[str, AfterValidator(_whole)]
"""Path that is the same for every reader of the file. Empty: the default place."""


class ConfigTable(BaseModel):
    """Table of the configuration. pydantic builds it only with the whole configuration.

    Therefore the defaults are made without a check; a test checks them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, defer_build=True)


class FleetConfig(ConfigTable):
    """Table `[fleet]`: what this box shares with the fleet that it has joined. The fleet's agent reads it."""

    share: Literal["all", "status"] = "all"
    accept: Annotated[
        list[Annotated[str, Field(pattern=r"^([a-z0-9][a-z0-9-]{0,31}|\*)$")]], Field(max_length=256)
    ] = []
    labels: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")], Annotated[str, Field(max_length=256)]
    ] = {}
    workspaces: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")],
        Annotated[str, Field(pattern=r"^(/|~/)", max_length=4096)],
    ] = {}
    max_jobs: Annotated[int, Field(ge=0, le=10_000)] = 0


Bind = Annotated[str, Field(min_length=1, max_length=255)]
Port = Annotated[int, Field(ge=1, le=65535)]
PageUrl = Annotated[str, Field(pattern=r"^(https?://[^\s/@]+(/\S*)?)?$", max_length=2048)]


class WebConfig(ConfigTable):
    """Table `[web]`: the options of `clisup web`, which reads it at its start. Options of the command take precedence."""

    bind: Bind = "127.0.0.1"
    port: Port = 7777
    url: PageUrl = ""
    tls_cert: Place = ""
    tls_key: Place = ""


class GatewayConfig(ConfigTable):
    """Table `[gateway]`: the options of `clisup gateway`, which reads it at its start, and `clisup doctor`."""

    bind: Bind = "127.0.0.1"
    port: Port = 7788
    url: PageUrl = ""
    tls_cert: Place = ""
    tls_key: Place = ""
    backends: Annotated[list[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]], Field(max_length=256)] = []
    allow_subscription: bool = False
    cli_tools: Literal["none", "default"] = "none"
    models: dict[
        Annotated[str, Field(pattern=r"^[\x21-\x7e]{1,128}$")],
        Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,63}(/[\x21-\x7e]{1,128})?$")],
    ] = {}
    cwd: Place = ""
    max_requests: Annotated[int, Field(ge=1, le=10_000)] = 256
    max_body_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = 12 * 1024 * 1024
    tool_timeout_s: Annotated[float, Field(gt=0, le=604_800, allow_inf_nan=False)] = 600
    keep_s: Annotated[float, Field(gt=0, le=31_536_000, allow_inf_nan=False)] = 86_400
