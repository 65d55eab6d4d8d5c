"""Record what real ACP agents say in a dialogue with the adapter: the golden files of its decoder.

    python -m tests.e2e.acp.record                                            # every run of qwen, two at a time
    python -m tests.e2e.acp.record text memory                                # some of them, by the first name of a session
    python -m tests.e2e.acp.record --agent opencode --agents DIRECTORY        # an agent of tests/e2e/acp/agents.py
    python -m tests.e2e.acp.record --agent gemini-live                        # a live process of a kind of its own

The agent gets the adapter's own words: its launch spec, then the decoder's replies. Home and directory are thrown away, the
environment is built from nothing, the fake API is on loopback. Stdout is stored as it came, but for scratch paths, ports and
pids, and for long lists that nobody reads: slash commands (qwen tells 560 kB of them and of skills in each session), models
and the values of settings. One entry of each is kept, and the one in force. Two recordings differ in ids, times and durations.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import signal
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from clisup.backends.base import LaunchRequest
from clisup.model.usage import NO_USAGE
from tests.e2e.acp.agent import Agent, Run
from tests.e2e.acp.agents import AGENTS
from tests.e2e.acp.dialogue import Talk, converse
from tests.e2e.acp.native import NATIVE
from tests.e2e.acp.qwen import QWEN
from tests.e2e.lab import ROOT

RECORDINGS = ROOT / "tests" / "recordings"
BY_NAME = {agent.name: agent for agent in (QWEN, *AGENTS, *NATIVE)}


def record(agent: Agent, agents: Path, runs: tuple[Run, ...], target: Path) -> list[str]:
    """The runs of one session, one after the other, with one home and one fake."""
    # not under /tmp: codex refuses to put its helpers there
    root = Path(tempfile.mkdtemp(prefix="clisup-record-", dir="/var/tmp"))
    for name in ("home", "cwd", "run"):
        (root / name).mkdir()
    lines, session = [], None
    command = agent.command(agents)
    with agent.api(runs[0].scenario) as api:
        for run in runs:
            native = session if run.session == "again" else run.session
            request = LaunchRequest(
                command=tuple(command),
                prompt=run.prompt,
                native_session_id=native,
                resume=native is not None,
                cwd=str(root / "cwd"),
                scratch=str(root / "run"),
                **run.request,
            )
            variables = agent.environment(run, api.url, root / "home")
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(root / "home"), "LANG": "C.UTF-8", **variables}
            kill = (run.kill_after, signal.SIGKILL) if run.kill_after else None
            served = api.served.so_far()
            talk = converse(
                agent.adapter, request, env, answer=run.answer, answers=run.answers, cancel_after=run.cancel_after,
                signal_after=kill,
            )  # fmt: skip
            session = next(
                (e.native_session_id for d in talk.decoded for e in d.events if e.type == "session_init"), None
            )
            places = {str(root): "/scratch", str(agents): "/agents", str(ROOT): "/checkout"}
            lines.append(_store(agent, run, request, talk, api.served.since(served), sorted(env), places, target))
    shutil.rmtree(root, ignore_errors=True)
    return lines


def _store(
    agent: Agent,
    run: Run,
    request: LaunchRequest,
    talk: Talk,
    served: dict[str, int],
    names: list[str],
    places: dict[str, str],
    target: Path,
) -> str:
    launch: dict[str, Any] = {"native_session_id": request.native_session_id, "resume": request.resume, **run.request}
    meta = {
        "scenario": run.scenario,
        "cli_version": agent.version,
        "argv": [Path(word).name for word in agent.adapter.launch(request).argv]
        if agent.folder
        else [Path(word).name for word in request.command],
        "environment": names,
        "prompt": run.prompt,
        "launch": launch,
        "carried": {"usage": msgspec.to_builtins(NO_USAGE)} if agent.folder else {"cost_usd": 0.0},
        "exit_code": talk.returncode if talk.returncode >= 0 else None,
        "signal": -talk.returncode if talk.returncode < 0 else None,
        "stderr": talk.stderr.decode(errors="replace"),
        "served": served,
        "ended": "by a kill" if run.kill_after else "by session/cancel" if run.cancel_after else "by itself",
    }
    target.mkdir(parents=True, exist_ok=True)
    stdout = "\n".join(_without_lists(line) for line in _stable(talk.stdout.decode(), places).split("\n"))
    (target / f"{run.name}.jsonl").write_text(stdout, encoding="utf-8", newline="")
    text = _stable(json.dumps(meta, indent=1, ensure_ascii=False), places)
    (target / f"{run.name}.meta.json").write_text(text + "\n", encoding="utf-8")
    return f"{run.name}: exit {talk.returncode}, {stdout.count(chr(10))} lines, {len(stdout)} characters"


def _stable(words: str, places: dict[str, str]) -> str:
    """Replace what names this machine and this run's place."""
    for place, name in places.items():
        words = words.replace(place, name).replace(re.sub("[^A-Za-z0-9]", "-", place), name.replace("/", "-"))
    words = re.sub(r"Process Group PGID: \d+", "Process Group PGID: 1000", words)
    words = re.sub(r'"pid":\d+', '"pid":1000', words)
    words = re.sub(r"Platform: linux x64 \([^)]*\)", "Platform: linux x64 (6.1.0)", words)
    return re.sub(r"127\.0\.0\.1:\d{4,5}", "127.0.0.1:8080", words)


def _without_lists(line: str) -> str:
    """The line with one entry of each long list, and the one in force; a line without such lists stays as it is."""
    if not any(name in line for name in ("availableCommands", "availableModels", "configOptions")):
        return line
    frame = json.loads(line)
    update = frame.get("params", {}).get("update", {})
    if "availableCommands" in update:
        update["availableCommands"] = update["availableCommands"][:1]
        update.pop("_meta", None)
    told = frame.get("result") or update
    models = told.get("models") or {}
    _shorten(models, "availableModels", "modelId", models.get("currentModelId"))
    for option in told.get("configOptions") or ():
        _shorten(option, "options", "value", option.get("currentValue"))
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False)


def _shorten(holder: dict[str, Any], name: str, key: str, current: Any) -> None:
    """Modes stay whole: they are few, and recordings choose among them."""
    if name in holder and holder.get("category") != "mode":
        holder[name] = [item for n, item in enumerate(holder[name]) if n == 0 or item.get(key) == current]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("session", nargs="*", help="default: all")
    parser.add_argument("--agent", choices=sorted(BY_NAME), default=QWEN.name)
    parser.add_argument("--agents", type=Path, default=ROOT / ".e2e", help="where npm has installed them")
    parser.add_argument("--to", type=Path, help="default: the directory of the agent's recordings")
    options = parser.parse_args()
    agent = BY_NAME[options.agent]
    target = options.to or RECORDINGS / (agent.folder or f"acp/{agent.name}-{agent.version}")
    chosen = [runs for runs in agent.runs if not options.session or runs[0].name in options.session]
    started = time.monotonic()
    with ThreadPoolExecutor(max_workers=2) as pool:
        for lines in pool.map(lambda runs: record(agent, options.agents, runs, target), chosen):
            print("\n".join(lines), flush=True)
    print(f"{len(chosen)} sessions in {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
