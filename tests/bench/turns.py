"""What a turn of a real CLI takes beside the model: live beside one-shot. The APIs are loopback fakes that answer at once."""

from __future__ import annotations

from clisup.backends.registry import get_adapter
from tests.bench.figures import Figure, figure, missing
from tests.bench.setting import Setting
from tests.e2e.labs import CLIS, cli_of, is_installed

__all__ = ["measure"]

PART = "turns"
ROUNDS = 9


def measure(setting: Setting) -> list[Figure]:
    """One daemon for each CLI: a one-shot and a live session, a turn of each in every round."""
    return [_turns(setting, kind) for kind in CLIS]


def _turns(setting: Setting, kind: str) -> Figure:
    live = get_adapter(kind).capabilities.live
    name = f"a {'live' if live else 'one-shot'} turn of {cli_of(kind)}"
    if not is_installed(kind):
        return missing(PART, name, "not installed: make e2e-install")
    with CLIS[kind].playing("text") as lab:
        took = lab.laps(("one-shot", "live") if live else ("one-shot",), setting.of(ROUNDS, 3, 1))
    one_shot = [seconds * 1000 for seconds in took["one-shot"]]
    setting.say(f"turns: {kind} { ({mode: [round(lap * 1000) for lap in laps] for mode, laps in took.items()}) }")
    if not live:
        return figure(PART, name, "ms", one_shot)
    return figure(PART, name, "ms", [lap * 1000 for lap in took["live"]], reference="one-shot", against=one_shot)
