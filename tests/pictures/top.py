"""`make pictures`: docs/images/top.svg, `clisup top` over a real daemon with the demo backend.

python -m tests.pictures.top [FILE.svg [COLUMNSxLINES]]
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from pathlib import Path

from clisup.cli.top.app import Top
from tests.pictures.scene import Scene

PICTURE = Path(__file__).parents[2] / "docs" / "images" / "top.svg"
SIZE = (120, 35)
LOOKED_S = 12.0
FONT = "DejaVu Sans Mono, Menlo, Consolas"


async def picture(scene: Scene, size: tuple[int, int]) -> str:
    top = Top(scene.daemon.socket, follow=scene.named("publishing")["session_id"])
    async with top.run_test(size=size, notifications=True) as pilot:
        end = time.monotonic() + LOOKED_S
        while time.monotonic() < end:
            await pilot.pause(0.1)
        return top.export_screenshot(title="clisup top")


def cleaned(drawn: str) -> str:
    """The picture with the reader's fonts: a picture in the tree loads nothing from anywhere."""
    drawn = re.sub(r"@font-face \{.*?\}", "", drawn, flags=re.DOTALL).replace("Fira Code", FONT)
    return re.sub(r"[ \t]+$", "", drawn, flags=re.MULTILINE)


def main() -> int:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE
    columns, lines = map(int, sys.argv[2].split("x")) if len(sys.argv) > 2 else SIZE
    scene = Scene()
    try:
        scene.play()
        drawn = asyncio.run(picture(scene, (columns, lines)))
        target.write_text(cleaned(drawn).replace(str(scene.daemon.root), "/home/you"))
    finally:
        scene.close()
    print(target)
    return 0


if __name__ == "__main__":
    sys.exit(main())
