"""`make web-pictures`: the pages of `clisup web` on a phone and on a desktop, as Chromium draws them."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.pictures.scene import Scene
from tests.pictures.web_cost import Month

sys.path.insert(0, str(Path(__file__).parents[1] / "web"))
from web_process import Pages

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
OTHER_PLACE = """([here, there]) => {
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) texts.currentNode.data = texts.currentNode.data.replaceAll(here, there);
}"""
"""Script for a page: no picture shows where this checkout is."""
PHONE, DESKTOP = {"width": 390, "height": 780}, {"width": 1100, "height": 640}


def main() -> None:
    """Draw the pages."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        scene = Scene()
        scene.play()
        scene.talk()
        session, running, talking = (
            scene.named(job)["session_id"] for job in ("publishing", "compiling", "talking")
        )  # fmt: skip
        draw(browser, scene, {
            "now": "/", "approvals": "/approvals", "session": f"/sessions/{session}", "timeline": "/timeline",
            "processes": f"/sessions/{running}/processes", "context": f"/sessions/{talking}/context",
        })  # fmt: skip
        month = Month()
        month.play()
        draw(browser, month, {"cost": "/cost", "accounts": "/accounts"})
        browser.close()


def draw(browser: Any, scene: Scene | Month, paths: dict[str, str]) -> None:
    """Draw these pages of a daemon, and close it."""
    pages = Pages(scene.daemon)
    pages.start()
    try:
        for name, viewport, scheme in (("phone", PHONE, "light"), ("desktop", DESKTOP, "dark")):
            page = browser.new_context(viewport=viewport, color_scheme=scheme).new_page()
            page.goto(f"{pages.origin}/login?code={pages.book.add_link('pictures', 'drive')}")
            page.click("main button")
            page.wait_for_selector("#cards .card")
            for title, path in paths.items():
                page.goto(pages.origin + path)
                page.wait_for_timeout(1500)  # the live messages have come
                page.evaluate(OTHER_PLACE, [str(ROOT), "/opt/clisup"])
                page.screenshot(path=str(IMAGES / f"web-{title}-{name}.png"))
    finally:
        pages.end()
        scene.close()


if __name__ == "__main__":
    main()
