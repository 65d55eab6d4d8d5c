"""May a session be opened as it was asked for? What its directory, its backend and its backend's version say to that."""

from __future__ import annotations

import os

from clisup.backends.base import Capabilities
from clisup.daemon.backends import Backend
from clisup.daemon.tools.bridge_config import check_brought
from clisup.errors import UsageError, WorldError
from clisup.policy.versions import in_range
from clisup.wire.models import SessionNewParams

__all__ = ["check_capabilities", "check_cwd", "check_live"]


def check_live(params: SessionNewParams, backend: Backend, version: str | None) -> None:
    """An older CLI may take prompts on its stdin and yet not say what became of them."""
    wanted = backend.adapter.capabilities.live_versions
    if (params.mode or backend.mode) != "live" or not wanted or version is None or in_range(version, wanted):
        return
    raise WorldError(
        f"cannot open a live session of backend {backend.name!r}, because it is version {version}, "
        f"and live mode is known for {wanted}",
        kind="backend_version_unsupported",
        hint="install a newer one, or open the session with mode: one-shot",
        backend=backend.name,
        installed=version,
        supported=wanted,
    )


def check_cwd(cwd: str) -> None:
    """A session's directory must be there and be enterable, at its opening and again at each turn (by the keeper)."""
    if not os.path.isdir(cwd):
        reason = "it is no directory" if os.path.exists(cwd) else "there is no such directory"
    elif not os.access(cwd, os.R_OK | os.X_OK):
        reason = "the daemon may not enter it"
    else:
        return
    raise UsageError(
        f"cannot work in {cwd}, because {reason}", kind="invalid_params", hint="give an existing directory as cwd"
    )


def check_capabilities(params: SessionNewParams, backend: str, can: Capabilities) -> None:
    """Has the backend what is asked for, and does it go together? Raises `UsageError`: unsupported, invalid_params."""
    wants = {
        "system_prompt": params.system_prompt is not None and not can.system_prompt,
        "mcp_config": params.mcp_config is not None and not can.mcp,
        "tools": params.tools is not None and not can.tools,
        "resume_native_id": params.resume_native_id is not None and not can.resume,
        "history": bool(params.history) and not can.history,
        "cli_tools": params.cli_tools not in (None, "default") and not can.cli_tools,
        "system_prompt_mode": params.system_prompt_mode not in (None, "append", *can.system_prompt_modes),
        "mode": (params.mode == "live" and not can.live) or (params.mode == "one-shot" and not can.one_shot),
    }
    for name in (name for name, missing in wants.items() if missing):
        raise UsageError(
            f"cannot use {name} with backend {backend!r}, because it has no such feature",
            kind="unsupported",
            hint="see backend/list, or clisup backends --json",
        )
    modes = can.permission_modes
    if params.permission_mode is not None and modes is not None and params.permission_mode not in modes:
        raise UsageError(
            f"cannot use permission mode {params.permission_mode!r}, because backend {backend!r} does not have it",
            kind="invalid_params",
            hint=f"it has: {', '.join(modes) or 'none'}",
        )
    if params.tools:
        check_brought(params.mcp_config)
