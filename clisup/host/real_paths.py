"""Real paths: links followed, as far as the files exist."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["real_paths"]


def real_paths(paths: Sequence[str], cwd: str) -> tuple[list[str], str]:
    """Return each path, relative ones below `cwd`, with all links followed, and the real path of `cwd`.

    The function may wait for a slow disk. A missing file gets the real path of the directory it would be in. A link may
    change after the read.
    """
    return [os.path.realpath(os.path.join(cwd, path)) for path in paths], os.path.realpath(cwd)
