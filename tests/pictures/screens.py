"""`make pictures`: docs/images/{status,sessions,approvals,run}.svg, terminals with real commands over the scene's daemon.

python -m tests.pictures.screens [DIRECTORY]
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.pictures.scene import Scene
from tests.pictures.terminal import Film, Pane, Run, still

IMAGES = Path(__file__).parents[2] / "docs" / "images"
COMMANDS = {
    "status": (120, 26, ["status"]),
    "sessions": (100, 11, ["sessions"]),
    "approvals": (100, 4, ["approvals"]),
}
"""Name of a picture -> columns, lines and the command."""


def screen(scene: Scene, columns: int, lines: int, words: list[str]) -> str:
    """Return the picture of a command that ends by itself."""
    pane = Pane(columns, lines, "")
    pane.say(f"$ clisup {' '.join(words)}\n")
    film = Film(pane)
    run = Run(pane, [sys.executable, "-m", "clisup", *words], environment(scene), str(scene.daemon.cwd))
    film.runs.append(run)
    film.until(lambda: run not in film.runs, " ".join(words))
    run.close()
    return still(pane)


def asked(scene: Scene) -> str:
    """Return the picture of `clisup run` at the moment at which it asks the user."""
    words = ["run", "-b", "demo", "--live", "--permission-mode", "default"]
    prompt = 'I look at the branch first.\n@ask Bash {"command": "git push origin main"}\nPublished.'
    pane = Pane(100, 10, "")
    pane.say(f"$ clisup {' '.join(words)} ...\n")
    film = Film(pane)
    run = Run(pane, [sys.executable, "-m", "clisup", *words, prompt], environment(scene), str(scene.daemon.cwd))
    film.runs.append(run)
    try:
        film.until(lambda: "git push origin main" in pane.text, "the question")
        film.play(1.0)
        return still(pane)
    finally:
        run.close()


def environment(scene: Scene) -> dict[str, str]:
    return {**scene.daemon.env, "HOME": str(scene.daemon.root), "CLISUP_SOCKET": scene.daemon.socket}


def main() -> int:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    scene = Scene()
    try:
        scene.play()
        for name, (columns, lines, words) in COMMANDS.items():
            write(scene, directory / f"{name}.svg", screen(scene, columns, lines, words))
        write(scene, directory / "run.svg", asked(scene))
    finally:
        scene.close()
    return 0


def write(scene: Scene, target: Path, drawn: str) -> None:
    """Write a picture without the paths of this machine."""
    target.write_text(drawn.replace(str(scene.daemon.root), "/home/you").replace(sys.prefix, "/usr"))
    print(target)


if __name__ == "__main__":
    sys.exit(main())
