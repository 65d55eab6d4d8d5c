"""Errors about a CLI that cannot be used: it reports no version, or one that is not accepted."""

from __future__ import annotations

from collections.abc import Sequence

from clisup.errors import WorldError

__all__ = ["no_version", "wrong_version"]


def no_version(backend: str, path: str, why: str, held: Sequence[str]) -> WorldError:
    """Return the error for a CLI without a version. `why` are its exit code and its words; "" before the end of the probe.

    `held` are held-back variables that a version manager's shim may need.
    """
    said = f": {why}" if why else " so far"
    hint = f"the daemon's PATH and environment differ from your shell's: clisup env {backend}"
    if held:
        names = ", ".join(f'"{name}"' for name in held)
        hint += f"; it holds back what a shim may need: pass_env = [{names}] in [backends.{backend}]"
    return WorldError(
        f"cannot use backend {backend!r}, because {path} reported no version{said}",
        kind="backend_unavailable",
        hint=hint,
        backend=backend,
    )


def wrong_version(backend: str, path: str, version: str, accepted: str, update: str) -> WorldError:
    """Return the error for a CLI whose version is not accepted. `update` is the command that updates it, or ""."""
    return WorldError(
        f"cannot use backend {backend!r}, because {path} is version {version}, and clisup accepts {accepted}",
        kind="backend_version_unsupported",
        hint=f"{update or 'install an accepted version'}, or set backends.{backend}.versions if you know that this one works",
        backend=backend,
        installed=version,
        supported=accepted,
    )
