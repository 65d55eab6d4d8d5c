"""The animals as tools of a live codex: whoever ends the process, nothing of its tree is left (fault 10).

A real daemon, the real `codex app-server` in front of a fake of its API, and a cage around each session. The tool of a turn
starts an animal; then the process ends in one of the ways of `ENDINGS`. An interrupt and the watchdog end the turn alone, so
the session is closed after them: what codex itself left alive by then is counted apart.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from clisup.host.locks import lock_holder
from tests.chaos.codex import respond
from tests.e2e.codex.lab import CodexLab
from tests.e2e.codex.scenarios import Scenario
from tests.e2e.lab import poll, running
from tests.zoo import animals
from tests.zoo.cage import Cage

__all__ = ["ENDINGS", "CodexRound", "codex_lab", "main", "pause_codex", "play_codex"]

ENDINGS = ("interrupt", "watchdog", "close", "kill", "at rest", "CLI killed", "keeper killed")
_OUTCOMES = {"interrupt": "interrupted", "watchdog": "timed_out", "close": "interrupted", "kill": "interrupted",
             "at rest": "completed", "CLI killed": "failed", "keeper killed": "failed"}  # fmt: skip
_LIMIT_S, _OVER_S = 4.0, (0.5, 2.0)  # silence, and by how much longer the daemon is away
_WORDS, _WORD_S = 30, 0.25
_GONE_S = 5.0
"""Fault 10 says 2 s after a kill; here a whole order of a client is on the way to it."""


@dataclass(frozen=True)
class CodexRound:
    """What came of one: `left` outlived the end of the process, `after_turn` outlived an interrupted turn of it."""

    kind: str
    ending: str
    outcome: str
    left: int
    after_turn: int = 0
    cgroup: bool = False

    @property
    def wrong(self) -> bool:
        """Tell whether the turn ended otherwise than its ending says."""
        return self.outcome != _OUTCOMES[self.ending]


def codex_lab(**options: Any) -> CodexLab:
    """A daemon with a codex. Its model plays the prompts, as in the chaos of codex."""
    return CodexLab(Scenario("scripted", respond), **options)


def play_codex(lab: CodexLab, kind: str, ending: str) -> CodexRound:
    """Play one round in a session and a cage of its own."""
    with ExitStack() as stack:
        cage = stack.enter_context(Cage(None))
        limits: dict[str, float] = {"int_grace": 10, "term_grace": 1, "tool_idle": 1 if ending == "watchdog" else 600}
        session = lab.open(mode="live", cwd=str(cage.tree), permission_mode="danger-full-access", timeouts=limits)
        host = [os.path.realpath(sys.executable), "-I", "-S", animals.__file__, "host", kind, "stays"]
        command = f"{shlex.join(host)} >up 2>&1"  # a codex whose shell has ended kills the group of that
        lab.prompt(session, f"@bash setsid {command} &\nsaid" if ending == "at rest" else f"@bash {command}")
        poll(lambda: (cage.tree / "up").exists() and (cage.tree / "up").read_text(), f"the {kind} for {ending}")
        started = lab.events(session, "process_started")[0]
        after_turn = _end(lab, session, started["pid"], ending, cage)
        end = lab.wait_for(session, "turn_completed")
        lab.wait_for(session, "process_exited")
        left = _left(cage)
        return CodexRound(kind, ending, end["outcome"], left, after_turn, started.get("cgroup") is not None)


def _end(lab: CodexLab, session: str, pid: int, ending: str, cage: Cage) -> int:
    """End the process; give how many were left in the cage when only its turn had ended."""
    alive = 0
    with lab.client() as client:
        if ending == "interrupt":
            client.call("session/interrupt", session_id=session)
        if ending in ("interrupt", "watchdog", "at rest"):
            lab.wait_for(session, "turn_completed")
            alive = len([found for found in cage.living() if found.pid != pid])
            assert lab.pids(session) == [pid] and not lab.events(session, "process_exited")
        if ending == "kill":
            client.call("session/interrupt", session_id=session, mode="kill")
        elif ending == "CLI killed":
            os.kill(pid, signal.SIGKILL)
        elif ending == "keeper killed":
            lock = lab.state / "sessions" / session / "runs" / "1" / "keeper.lock"
            os.kill(_holder(str(lock)), signal.SIGKILL)
        else:
            client.call("session/close", session_id=session)
    return alive


def _holder(lock: str) -> int:
    holder = lock_holder(lock)
    assert holder is not None
    return holder


def _left(cage: Cage) -> int:
    end = time.monotonic() + _GONE_S
    while not (empty := cage.empty()) and time.monotonic() < end:
        time.sleep(0.01)
    return 0 if empty else max(1, len(cage.living()))


@dataclass(frozen=True)
class CodexPauses:
    """What came of turns whose daemon was stopped for longer than their limit (fault 21)."""

    pauses: int = 0
    false_kills: int = 0
    hung_not_ended: int = 0


def pause_codex(rounds: int, healthy: int = 3) -> CodexPauses:
    """Stop the daemon for longer than `model_idle`. Healthy turns get a word all the time, a hung one gets none."""
    false_kills = not_ended = 0
    with running(codex_lab()) as lab:
        assert lab.daemon is not None
        limits = {"model_idle": _LIMIT_S, "term_grace": 1}
        sessions = [lab.open(mode="live", timeouts=limits) for _ in range(healthy)]
        for number in range(rounds):
            hung = lab.open(mode="live", timeouts=limits)
            for session in sessions:
                lab.prompt(session, f"@slow {_WORDS} {_WORD_S}")
            lab.prompt(hung, "@stall")
            for session in (*sessions, hung):
                lab.wait_for(session, "content_delta", turn_id="t1" if session == hung else f"t{number + 1}")
            lab.daemon.send_signal(signal.SIGSTOP)
            time.sleep(_LIMIT_S + _OVER_S[number % len(_OVER_S)])
            lab.daemon.send_signal(signal.SIGCONT)
            ends = [lab.wait_for(session, "turn_completed", turn_id=f"t{number + 1}") for session in sessions]
            false_kills += sum(end["outcome"] != "completed" for end in ends)
            not_ended += lab.wait_for(hung, "turn_completed")["outcome"] != "timed_out"
    return CodexPauses(rounds * healthy, false_kills, not_ended)


def main(kills: int, pauses: int) -> int:
    """`CLI=codex make zoo`: print a row for each ending, and the verdict."""
    began = time.monotonic()
    paused = pause_codex(pauses) if pauses else CodexPauses()
    print(
        f"{paused.pauses} pauses of healthy turns, {paused.false_kills} ended; {paused.hung_not_ended} hung turns not ended"
    )
    cells = [(kind, ending) for kind in animals.KINDS for ending in ENDINGS]
    with running(codex_lab()) as lab:
        rounds = [play_codex(lab, *cells[number % len(cells)]) for number in range(kills)]
    print(f"{'ending':14} {'rounds':>6} {'survivors':>9} {'wrong outcomes':>14} {'alive after the turn':>20}")
    for ending in ENDINGS:
        group = [each for each in rounds if each.ending == ending]
        left, wrong = sum(each.left for each in group), sum(each.wrong for each in group)
        print(f"{ending:14} {len(group):6} {left:9} {wrong:14} {sum(each.after_turn > 0 for each in group):20}")
    for each in rounds:
        if each.left or each.wrong:
            print("!", each)
    survivors, wrong = sum(each.left for each in rounds), sum(each.wrong for each in rounds)
    print(f"{len(rounds)} ends of a live codex, {time.monotonic() - began:.0f} s, "
          f"{'with' if all(each.cgroup for each in rounds) else 'without'} cgroups")  # fmt: skip
    print(f"survivors: {survivors}\nfalse kills: {paused.false_kills}")
    return int(bool(survivors or wrong or paused.false_kills or paused.hung_not_ended))
