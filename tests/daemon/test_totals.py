"""Usage of a turn where the CLI tells running totals: what a turn that died has used is not charged to the next one."""

from __future__ import annotations

import json
import stat
import sys
from collections.abc import Callable
from pathlib import Path

from harness import Harness

from tests.versions import VERSIONS

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "recordings" / "qwen" / VERSIONS["qwen"]
PLAYER = f"{sys.executable} -I -S {ROOT}/clisup/demo/__main__.py --play"


def played(directory: Path, *names: str) -> list[str]:
    """A command that plays one recording after the other, one a turn."""
    plays = "".join(f'  {n}) exec {PLAYER} {RECORDED / name}.jsonl 0 "$@" ;;\n' for n, name in enumerate(names, 1))
    script = directory / "cli"
    script.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && {{ echo 0.24.4; exit; }}\necho >> {directory}/turns\n'
        f"case $(wc -l < {directory}/turns) in\n{plays}esac\n"
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return [str(script)]


def test_the_turn_after_one_that_told_no_total_has_what_its_messages_told_and_the_next_its_own_share(
    serve: Callable[..., Harness], tmp_path: Path
) -> None:
    command = played(tmp_path, "memory", "stall_mid_stream_sigkill", "memory_resume", "subagent")
    daemon = serve(raw=f'[backends.totals]\nkind = "qwen"\ncommand = {json.dumps(command)}\n')
    session = daemon.new(backend="totals")
    usages = [session.ask(f"turn {n}")["usage"] for n in range(4)]
    assert [usage["source"] for usage in usages] == ["reported", "unknown", "estimated", "reported"]
    assert usages[0]["output_tokens"] > 0
    assert usages[2]["output_tokens"] == 41  # of its one message; its share of the total cannot be told
    assert usages[3]["output_tokens"] == 166 - 81  # the total of this turn without that of the one before
