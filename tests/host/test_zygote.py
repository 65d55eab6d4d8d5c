"""The keeper zygote: what it forks is a keeper like any other, and whatever becomes of it, a run has one keeper at most."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from clisup.daemon.runs import keeper_starts
from clisup.daemon.runs.keeper_starts import KeeperStarts
from clisup.host.process.keepers import KEEPER_FILE, KeeperPipes, KeeperZygote, start_keeper
from tests.keeper.keeper_probe import changed_keeper

PATIENCE_S = 30.0
LIKE = ("Umask", "Uid", "Gid", "Groups", "SigBlk", "SigIgn", "SigCgt", "CapEff", "NoNewPrivs", "Seccomp")
DIES_WHEN_ASKED = ("zygote.py", "pid = os.fork()", "os._exit(1)")
DIES_BEFORE_ITS_ANSWER = ("zygote.py", 'link.send(b"%d" % pid)', "os._exit(1)")
KEEPER_DIES_BEFORE_ITS_WORD = ("main.py", "answer(keeper.start())", "keeper.start(), os._exit(9)")
LEAVES_AT_ONCE = ("zygote.py", 'link.send(b"up")', "os._exit(1)")
CANNOT_FORK = ("zygote.py", "pid = os.fork()", "raise OSError(errno.EAGAIN, '')")


class Runs:
    """Makes specs of runs in directories of their own, and ends what keeps them."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._made: list[Path] = []

    def __call__(self, command: str = "exec sleep 600", **more: Any) -> dict[str, Any]:
        self._made.append(self._root / f"run{len(self._made)}")
        self._made[-1].mkdir()
        argv = ["/bin/sh", "-c", command]
        env = {"PATH": "/usr/bin:/bin"}
        return {"proto": 1, "run_dir": str(self._made[-1]), "argv": argv, "env": env, "cwd": str(self._root), **more}

    def end(self) -> None:
        for run in self._made:
            if (run / "start.json").exists():
                kill(json.loads((run / "start.json").read_text())["keeper_pid"])


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    made = Runs(tmp_path)
    yield made
    made.end()


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


async def until(what: Callable[[], Any]) -> Any:
    with trio.fail_after(PATIENCE_S):
        while not (value := what()):
            await trio.sleep(0.01)
    return value


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def face(pid: int, run: str) -> dict[str, Any]:
    """What /proc shows of a process, without what differs from one to the next."""
    proc = Path(f"/proc/{pid}")
    status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
    links = {int(path.name): os.readlink(path) for path in (proc / "fd").iterdir()}
    files = {fd: link.replace(run, "RUN").replace(str(pid), "PID").partition(":[")[0] for fd, link in links.items()}
    return {
        **{name: status[name] for name in LIKE},
        "limits": (proc / "limits").read_text(),
        "environ": (proc / "environ").read_bytes(),
        "name": (proc / "comm").read_text(),
        "cwd": os.readlink(proc / "cwd"),
        "own session and group": os.getsid(pid) == os.getpgid(pid) == pid,
        "files": files,
        "cgroup": (proc / "cgroup").read_text(),
        "oom": (proc / "oom_score_adj").read_text(),
    }


@asynccontextmanager
async def zygote_of(keeper_file: str = KEEPER_FILE) -> AsyncIterator[KeeperZygote]:
    zygote = KeeperZygote(keeper_file)
    try:
        assert await zygote.up()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(zygote.receive_answers)
            yield zygote
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            await zygote.end()


async def word_of(pipes: KeeperPipes, spec: dict[str, Any]) -> dict[str, Any] | None:
    with trio.fail_after(PATIENCE_S):
        return await pipes.hand_over(json.dumps(spec).encode())


async def forked(zygote: KeeperZygote, spec: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """The pids of a keeper that it forks, and its word."""
    keeper = zygote.fork()
    assert keeper is not None
    word = await word_of(keeper.pipes, spec)
    await until(keeper.answered.is_set)
    assert word is not None and word.get("ready") and keeper.pid, word
    return keeper.pid, word


async def until_alike(one: tuple[int, str], other: tuple[int, str]) -> None:
    """Both are still at their first steps."""
    with trio.move_on_after(PATIENCE_S):
        while face(*one) != face(*other):
            await trio.sleep(0.01)
    assert face(*one) == face(*other)


async def test_a_forked_keeper_and_its_cli_look_like_those_of_one_that_was_started(runs: Runs) -> None:
    specs = [runs(), runs()]
    async with zygote_of() as zygote:
        pid, word = await forked(zygote, specs[0])
        assert parent(pid) == zygote.pid
        cold = start_keeper()
        cold_word = await word_of(cold.pipes, specs[1])
        assert cold_word is not None
        try:
            for one, other in ((pid, cold.pid), (word["pid"], cold_word["pid"])):
                await until_alike((one, specs[0]["run_dir"]), (other, specs[1]["run_dir"]))
            assert face(pid, specs[0]["run_dir"])["environ"] == b""
        finally:
            kill(cold.pid)
            await cold.reap()


async def test_what_it_forks_leaves_nothing_in_it(runs: Runs) -> None:
    def held(pid: int) -> tuple[int, int]:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return len(os.listdir(f"/proc/{pid}/fd")), len(children)

    async with zygote_of() as zygote:
        assert held(zygote.pid) == (3, 0)
        pids = [(await forked(zygote, runs("exit 0", orphans="kill")))[0] for _ in range(20)]
        assert len(set(pids)) == 20
        await until(lambda: held(zygote.pid) == (3, 0))  # no zombie either


async def test_many_are_asked_for_at_once(runs: Runs) -> None:
    words: list[dict[str, Any]] = []

    async def one(zygote: KeeperZygote, spec: dict[str, Any]) -> None:
        words.append((await forked(zygote, spec))[1])

    async with zygote_of() as zygote, trio.open_nursery() as asking:
        for _ in range(20):
            asking.start_soon(one, zygote, runs(stdin="x" * 200_000))  # more than a pipe holds
    assert len({word["pid"] for word in words}) == 20


async def test_it_leaves_with_its_socket_and_its_keepers_go_on(runs: Runs) -> None:
    async with zygote_of() as zygote:
        pid, word = await forked(zygote, runs())
    assert not lives(zygote.pid) and lives(pid) and lives(word["pid"])


async def test_an_upgrade_of_the_installation_changes_no_keeper_that_is_forked_later(
    tmp_path: Path, runs: Runs
) -> None:
    """All code of a keeper is loaded before the first fork: from its start to its record it imports nothing."""
    imports_no_more = ("zygote.py", 'link.send(b"up")', '__import__("sys").meta_path.clear(), link.send(b"up")')
    async with zygote_of(str(changed_keeper(tmp_path / "installed", *imports_no_more))) as zygote:
        shutil.rmtree(tmp_path / "installed")
        await forked(zygote, runs("sleep 600 & exit 5", orphans="kill", stdout_mode="file", cgroup=None))
        await until((tmp_path / "run0" / "exit.json").exists)
        record = json.loads((tmp_path / "run0" / "exit.json").read_text())
        assert (record["exit_code"], record["keeper_fault"], len(record["survivors"])) == (5, None, 1)


async def test_what_a_killed_one_was_asked_for_is_known_not_to_be(runs: Runs) -> None:
    async with zygote_of() as zygote:
        os.kill(zygote.pid, signal.SIGSTOP)
        asked = [zygote.fork() for _ in range(3)]
        os.kill(zygote.pid, signal.SIGKILL)
        for keeper in asked:
            assert keeper is not None and await word_of(keeper.pipes, runs()) is None
        assert zygote.fork() is None


async def test_one_that_does_not_read_is_not_asked_without_end() -> None:
    async with zygote_of() as zygote:
        os.kill(zygote.pid, signal.SIGSTOP)
        asked = 0
        while zygote.fork() is not None:
            asked += 1
            assert asked < 5000
        os.kill(zygote.pid, signal.SIGKILL)


# -- with another keeper, if there can be one ---------------------------------------------------------------------------


@asynccontextmanager
async def starts_of(
    runs: Runs, keeper_file: str = KEEPER_FILE, *, up: bool = True
) -> AsyncIterator[tuple[KeeperStarts, trio.Nursery]]:
    starts = KeeperStarts(keeper_file)
    async with trio.open_nursery() as running:
        running.start_soon(starts.run)
        if up:
            await until(lambda: starts._zygote is not None)
        async with trio.open_nursery() as reaping:
            yield starts, reaping
            runs.end()
        running.cancel_scope.cancel()


def broken(directory: Path, change: tuple[str, str, str]) -> str:
    """A copy of the keeper with one line that is another."""
    name, line, other = change
    return str(changed_keeper(directory / "broken", name, line, other))


@pytest.mark.parametrize(
    ("change", "pids_known"),
    [(DIES_WHEN_ASKED, True), (CANNOT_FORK, True), (DIES_BEFORE_ITS_ANSWER, False), (LEAVES_AT_ONCE, True)],
    ids=["it dies when it is asked", "it cannot fork", "it dies before its answer", "it never comes up"],
)
async def test_the_run_has_its_keeper_and_its_cli_once(
    change: tuple[str, str, str], pids_known: bool, tmp_path: Path, runs: Runs
) -> None:
    async with starts_of(runs, broken(tmp_path, change), up=change != LEAVES_AT_ONCE) as (starts, reaping):
        word, pid, _ = await starts.start(runs(f"echo ran >> {tmp_path}/ran; exec sleep 600"), reaping)
        await until(lambda: (tmp_path / "ran").exists() and (tmp_path / "ran").read_text())  # a shell opens it first
        assert word["ready"] and (pid is not None) == pids_known
        start = json.loads((tmp_path / "run0" / "start.json").read_text())
        assert pid in (None, start["keeper_pid"]) and word["pid"] == start["pid"]
        assert lives(word["pid"]) and (tmp_path / "ran").read_text() == "ran\n"


async def test_a_keeper_that_died_after_its_mark_has_no_second_one(tmp_path: Path, runs: Runs) -> None:
    async with starts_of(runs, broken(tmp_path, KEEPER_DIES_BEFORE_ITS_WORD)) as (starts, reaping):
        word, _, why = await starts.start(runs(f"echo ran >> {tmp_path}/ran; exec sleep 600"), reaping)
        assert word == {} and why  # the run's directory tells
        started = json.loads((tmp_path / "run0" / "start.json").read_text())
        await until(lambda: not lives(started["pid"]))  # it died with its keeper, and no other one was started
        assert not (tmp_path / "run0" / "exit.json").exists()


async def test_one_that_hangs_is_killed_and_another_follows(monkeypatch: pytest.MonkeyPatch, runs: Runs) -> None:
    monkeypatch.setattr(keeper_starts, "FORK_LIMIT_S", 0.2)
    async with starts_of(runs) as (starts, reaping):
        assert starts._zygote is not None
        before = starts._zygote.pid
        os.kill(before, signal.SIGSTOP)
        word, pid, _ = await starts.start(runs(), reaping)
        assert word["ready"] and parent(pid or 0) == os.getpid()
        await until(lambda: starts._zygote is not None and starts._zygote.pid != before)
        word, again, _ = await starts.start(runs(), reaping)
        assert word["ready"] and parent(again or 0) == starts._zygote.pid


async def test_the_pauses_between_zygotes_that_fail_grow_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, autojump_clock: None
) -> None:
    """No process here: what is tried is the rule alone."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 15:
            raise trio.BrokenResourceError

    def cannot(_: str) -> KeeperZygote:
        raise OSError(11, "no process")

    monkeypatch.setattr(keeper_starts, "KeeperZygote", cannot)
    monkeypatch.setattr(keeper_starts.trio, "sleep", sleep)
    with pytest.raises(trio.BrokenResourceError):
        await KeeperStarts("nowhere").run()
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8] and pauses[-1] == pauses[-2] == keeper_starts.LONGEST_PAUSE_S
