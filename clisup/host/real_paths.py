"""Where paths really lead: links followed, as far as the files are there."""

from __future__ import annotations

import os
from collections.abc import Sequence

__all__ = ["real_paths"]


def real_paths(paths: Sequence[str], cwd: str) -> tuple[list[str], str]:
    """Each path, relative ones below `cwd`, with all links followed; and where `cwd` itself is. It may wait for a slow disk.

    What is not there yet has the real path of the directory that it would be in. A link may be changed after this was read.
    """
    return [os.path.realpath(os.path.join(cwd, path)) for path in paths], os.path.realpath(cwd)
