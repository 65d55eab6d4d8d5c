"""`make pictures`: docs/images/status.svg, `clisup status` of a real daemon with the demo backend.

python -m tests.pictures.status [FILE.svg [COLUMNS]]
"""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from clisup.cli.status.page import StatusOptions, render
from clisup.cli.views.terminal import Ink
from tests.pictures.scene import Scene
from tests.pictures.top import cleaned

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "status.svg"
COLUMNS = 100
HOME = "/home/alice"


def elsewhere(scene: Scene, status: dict[str, Any]) -> dict[str, Any]:
    """The status with paths of a user's machine, not of the one that draws."""
    daemon = status["daemon"] | {"socket": "/run/user/1000/clisup.sock", "state_dir": f"{HOME}/.local/state/clisup"}
    backends = [b | {"path": f"{HOME}/.local/bin/{b['name']}"} for b in status["backends"] if b["name"] == "demo"]
    sessions = [s | {"cwd": s["cwd"].replace(str(scene.daemon.cwd), f"{HOME}/work/app")} for s in status["sessions"]]
    return status | {"daemon": daemon, "backends": backends, "sessions": sessions}


def main() -> int:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    columns = int(sys.argv[2]) if len(sys.argv) > 2 else COLUMNS
    scene, ink = Scene(), Ink(io.StringIO())
    ink.on = True
    try:
        scene.play()
        text = render(elsewhere(scene, scene.status()), StatusOptions(), ink, columns)
        console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
        console.print(Text.from_ansi(text), end="")
        target.write_text(cleaned(console.export_svg(title="clisup status")))
    finally:
        scene.close()
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
