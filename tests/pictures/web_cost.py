"""Sessions of a month with their cost, and an account at its limit: what the pages of cost and accounts show."""

from __future__ import annotations

import random
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "daemon"))
sys.path.insert(0, str(Path(__file__).parents[1] / "web"))
from backdating import backdate
from harness import Harness, until

__all__ = ["Month"]

_MODELS = ("demo-large", "demo-small", "demo-vision")


class Month:
    """Daemon with the sessions."""

    def __init__(self) -> None:
        self.daemon = Harness(demo={"account": "work"})
        self.daemon.start()

    def play(self) -> None:
        chance = random.Random(7)
        days = {}
        for back in range(30):
            for model in _MODELS if back % 7 not in (2, 3) else _MODELS[1:2]:
                usd = chance.uniform(0.2, 3) * (2 if model == _MODELS[0] else 1)
                tokens = f"@usage {chance.randint(20_000, 900_000)} {chance.randint(900, 9000)}"
                days[self._turn(f"{tokens}\n@cost {usd:.2f}\nDone.", model=model)] = back
        self._turn("@cost 1.7\nDone.", title="Rebase the parser branch", budget={"usd": 2.0})
        self._turn("@cost 1.2\nDone.", title="Write the release notes", budget={"usd": 5.0, "turns": 20})
        backdate(self.daemon, days)
        self._turn("@limit 8000", title="Nightly dependency update")
        for title in ("Review the parser", "Fix the build on ARM"):
            waiting = self._open(title=title)
            self.daemon.call("session/prompt", session_id=waiting, prompt="Hi")
        until(lambda: all(s["held"] for s in self.daemon.call("daemon/status")["sessions"][:2]), "nothing waits")

    def _open(self, **params: Any) -> str:
        new = self.daemon.call("session/new", backend="demo", cwd=str(self.daemon.cwd), **params)
        return str(new["session_id"])

    def _turn(self, prompt: str, **params: Any) -> str:
        session_id = self._open(**params)
        self.daemon.call("session/prompt", session_id=session_id, prompt=prompt, wait=True)
        return session_id

    def close(self) -> None:
        self.daemon.close()
