"""Process of one part: plays its attacks one after the other, and prints an outcome a line, as JSON."""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
import time
import traceback
from typing import Any

from tests.attack.model import Attack, NotPlayed, Outcome

__all__ = ["attacks_of", "main", "play"]


def attacks_of(part: str) -> tuple[Attack, ...]:
    """Return the attacks of a part."""
    found: tuple[Attack, ...] = importlib.import_module(_module(part)).ATTACKS
    return found


def _module(part: str) -> str:
    return f"tests.attack.{part.replace('-', '_')}"


def main() -> int:
    part, seed, name, *flags = sys.argv[1:]
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what an attack prints by accident is no outcome
    chosen = [one for one in attacks_of(part) if name in one.name and (one.short or "--short" not in flags)]
    with importlib.import_module(_module(part)).ground(random.Random(int(seed))) as ground:
        for attack in chosen:
            out.write(json.dumps(play(part, attack, ground)) + "\n")
    return 0


def play(part: str, attack: Attack, ground: Any) -> Outcome:
    """Play one attack. An exception of the attack itself is no success of the defence."""
    began = time.monotonic()
    try:
        proof = attack.play(ground)
        word, detail = ("held", "") if proof is None else ("reached", proof)
    except NotPlayed as error:
        word, detail = "not played", str(error)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        word, detail = "broken", f"{type(error).__name__}: {str(error)[:600]} ({place.name}:{place.lineno})"
    return Outcome(part, attack.row, attack.name, word, detail, round(time.monotonic() - began, 1))


if __name__ == "__main__":
    sys.exit(main())
