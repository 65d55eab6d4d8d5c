"""Starting: one daemon for a place, clear refusals, and sessions that are damaged or too new beside healthy ones."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run
from harness import Harness, until

from clisup.daemon.start import Flags, place_of
from clisup.errors import ClisupError, ConfigurationError
from clisup.store.session_dir import SessionDir

cold = pytest.mark.cold  # where the start itself is looked at: locks, refusals, what is inherited


@cold
@pytest.mark.fault(50)
@pytest.mark.parametrize("shared", ["state directory", "socket"])
def test_of_two_daemons_one_wins_and_the_other_names_it(serve: Callable[..., Harness], shared: str) -> None:
    first, second = serve(), serve(start=False)
    if shared == "socket":
        second.socket = first.socket
    else:
        second.state = first.state
    code, words = second.refusal()
    assert code == 75 and f"pid {first.pid}" in words and shared in words
    assert first.new().ask("still here")["outcome"] == "completed"
    if shared == "state directory":
        second.state = second.root / "state"


@cold
@pytest.mark.fault(50)
def test_two_started_at_once_do_not_both_serve(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False)
    processes = [daemon.launch() for _ in range(3)]
    until(lambda: sum(process.poll() is not None for process in processes) == 2)
    assert {process.poll() for process in processes} == {75, None}
    daemon.process = next(process for process in processes if process.poll() is None)
    until(daemon._serves)


def test_a_lock_that_somebody_removed_is_taken_again(serve: Callable[..., Harness]) -> None:
    """A cleaner of /tmp removes what is old."""
    daemon, lock = serve(), "daemon.lock"
    (daemon.state / lock).unlink()
    until(lambda: (daemon.state / lock).exists() and (daemon.state / lock).read_text().startswith(f"{daemon.pid} "))
    second = serve(start=False)
    second.state = daemon.state
    code, words = second.refusal()
    assert code == 75 and f"pid {daemon.pid}" in words
    second.state = second.root / "state"


@pytest.mark.parametrize("spoil", ["remove", "replace", "rename the directory"])
def test_a_second_daemon_never_serves_a_state_whose_lock_file_somebody_removed(
    serve: Callable[..., Harness], spoil: str
) -> None:
    """The first daemon is stopped, so that it cannot take its lock again."""
    first, second = serve(), serve(start=False)
    mine, theirs = second.state, first.state
    os.kill(first.pid, signal.SIGSTOP)
    (theirs / "daemon.lock").unlink()
    if spoil == "replace":
        (theirs / "daemon.lock").touch()
    place = theirs.rename(first.root / "elsewhere") if spoil == "rename the directory" else theirs
    second.state = place
    code, words = second.refusal()
    assert code == 75 and f"pid {first.pid}" in words
    gc = run(second, "gc")
    assert gc.returncode == 75 and f"pid {first.pid}" in gc.stderr
    place.rename(theirs)
    os.kill(first.pid, signal.SIGCONT)
    second.state = mine
    until(lambda: (theirs / "daemon.lock").exists() and str(first.pid) in (theirs / "daemon.lock").read_text())
    assert first.new().ask("Hi.")["outcome"] == "completed"


def test_a_daemon_whose_lock_file_another_process_has_locked_leaves_the_state_to_it(
    serve: Callable[..., Harness],
) -> None:
    """As on a file system that locks no directories, with a second daemon."""
    daemon = serve()
    session = daemon.new()
    session.prompt("a word\n@wait-file go\nbye")
    session.await_event("content_delta")
    (daemon.state / "daemon.lock").unlink()
    hold = "import sys\nfrom clisup.host.locks import FileLock\nprint(FileLock(sys.argv[1]).acquire(), flush=True)\ninput()"
    argv = [sys.executable, "-c", hold, str(daemon.state / "daemon.lock")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "None\n"
        until(lambda: daemon.process is not None and daemon.process.poll() is not None)
        daemon._hang_up()
        assert f"pid {other.pid} serves the state directory now" in daemon.log.read_text()
        other.kill()
    daemon.start()
    (daemon.cwd / "go").touch()
    assert session.end_of("t1")["text"].endswith("bye")


@cold
def test_a_hangup_while_the_daemon_starts_or_stops_ends_nothing_and_is_a_reload(serve: Callable[..., Harness]) -> None:
    daemon = serve(daemon={"on_stop": "kill"}, start=False)
    daemon.process = daemon.launch()
    until(lambda: b"\0-m\0clisup\0serve" in Path(f"/proc/{daemon.pid}/cmdline").read_bytes())
    until(
        lambda: "SigBlk:\t0000000000000001" in Path(f"/proc/{daemon.pid}/status").read_text()
    )  # SIGHUP waits from here on
    daemon.signal(signal.SIGHUP)
    until(daemon._serves)
    until(lambda: "configuration reloaded" in daemon.log.read_text())
    session = daemon.new()
    session.prompt("a word\n@ignore-int\n@ignore-term\n@stall")
    session.await_event("content_delta")
    daemon._hang_up()
    daemon.signal(signal.SIGTERM)
    until(lambda: '"stopping"' in daemon.log.read_text())
    while daemon.process.poll() is None:
        daemon.signal(signal.SIGHUP)
        time.sleep(0.005)  # a flood would starve any Python
    assert daemon.process.wait() == 0


@cold
@pytest.mark.fault(51)
def test_a_stale_socket_is_taken_over(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False)
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(daemon.socket)
    daemon.start()
    assert daemon.call("ping") and os.stat(daemon.socket).st_mode & 0o777 == 0o600


@cold
@pytest.mark.fault(51)
def test_a_path_that_no_socket_can_have_is_refused(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False)
    daemon.socket = str(daemon.root / ("x" * 120))
    code, words = daemon.refusal()
    assert code == 78 and "107 bytes" in words


@cold
@pytest.mark.fault(60)
def test_a_state_directory_that_cannot_be_is_refused(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False)
    kept = daemon.state
    (daemon.root / "file").touch()
    daemon.state = daemon.root / "file" / "state"
    code, words = daemon.refusal()
    assert code == 69 and str(daemon.state) in words
    daemon.state = kept


@cold
@pytest.mark.parametrize("raw", ["[daemon]\nsokket = 1\n", "[backends.demo]\nmodel_idel = 1\n", "not toml"])
def test_a_configuration_with_a_fault_is_refused(serve: Callable[..., Harness], raw: str) -> None:
    daemon = serve(start=False)
    daemon.config.write_text(raw)
    code, words = daemon.refusal()
    assert code == 78 and "cannot" in words and "Traceback" not in words


@cold
@pytest.mark.fault(39)
@pytest.mark.parametrize("lists", ["missing", "incomplete", "broken"])
def test_no_scrub_list_no_start(serve: Callable[..., Harness], lists: str) -> None:
    daemon = serve(start=False)
    place = daemon.root / "lists"
    if lists != "missing":
        shutil.copytree(Path(__file__).parents[2] / "scrub_lists", place)
        (place / "common.deny").unlink() if lists == "incomplete" else (place / "common.deny").write_text("no | such\n")
    daemon.configure(daemon={"scrub_lists": str(place)})
    code, words = daemon.refusal()
    assert code == 78 and str(place) in words


@cold
@pytest.mark.fault(17)
def test_odd_things_inherited_change_no_exit_code(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve(start=False)

    def oddities() -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
        os.umask(0)

    fd = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(fd, True)
    daemon.start(preexec_fn=oddities, close_fds=False)
    os.close(fd)
    session = daemon.new()
    session.ask("@bash grep -E 'Sig(Blk|Ign)' /proc/$PPID/status; ls -l /proc/$PPID/fd; umask\n@exit 5")
    said = session.events("tool_result")[0]["content"]
    assert str(tmp_path) not in said and "0077" in said
    assert session.events("process_exited")[0]["exit_code"] == 5
    loose = [p for p in daemon.state.rglob("*") if p.stat().st_mode & 0o077 and not p.is_socket()]
    assert not loose
    assert daemon.stop() == 0


@pytest.mark.fault(58)
def test_a_damaged_journal_harms_no_other_session(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    hurt, well = daemon.new(), daemon.new()
    for session in (hurt, well):
        session.ask("hello")
    daemon.kill()
    journal = next((hurt.dir / "journal").iterdir())
    lines = journal.read_bytes().splitlines(keepends=True)
    damaged = b"".join([*lines[:3], b"rubbish\n", *lines[4:]])
    journal.write_bytes(damaged)
    daemon.start()
    assert well.ask("@recall")["outcome"] == "completed"
    with pytest.raises(ClisupError) as refused:
        hurt.ask("hello?")
    assert refused.value.kind == "session_not_found" and "damaged" in refused.value.message
    assert hurt.id in daemon.call("daemon/status")["damaged_sessions"]
    with pytest.raises(ClisupError) as refused:
        daemon.new(session_id=hurt.id)
    assert refused.value.kind == "storage_failed" and journal.read_bytes() == damaged


@pytest.mark.fault(58)
@pytest.mark.parametrize("damage", ["", "{", "[]", "{}"])
def test_a_damaged_session_file_costs_no_history(serve: Callable[..., Harness], damage: str) -> None:
    daemon = serve()
    hurt, well = daemon.new(), daemon.new()
    hurt.ask("hello")
    journal = next((hurt.dir / "journal").iterdir())
    before = journal.read_bytes()
    daemon.kill()
    (hurt.dir / "session.json").write_text(damage)
    (daemon.state / "sessions" / "notes").mkdir()
    daemon.start()
    assert journal.read_bytes().startswith(before) and (daemon.state / "sessions" / "notes").is_dir()
    assert hurt.await_event("notice", code="state_refused")
    assert [session.ask("hello")["outcome"] for session in (hurt, well)] == ["completed"] * 2


@pytest.mark.fault(61)
def test_a_session_of_a_newer_version_is_left_alone(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    newer, own = daemon.new(), daemon.new()
    daemon.kill()
    path, files = newer.dir / "session.json", SessionDir(str(daemon.state), newer.id)
    spec = files.load_spec()
    assert spec is not None
    files.remove()
    files.create(spec.model_copy(update={"version": 99}), {}, None, None)
    text = path.read_text()
    daemon.start()
    with pytest.raises(ClisupError) as refused:
        newer.get()
    assert "newer clisup" in refused.value.message
    with pytest.raises(ClisupError):
        daemon.new(session_id=newer.id)
    assert path.read_text() == text and own.ask("hello")["outcome"] == "completed"


@pytest.mark.parametrize("flags", [Flags(state_dir="state"), Flags(state_dir="/tmp/x", socket="sock")])
def test_a_relative_place_in_a_directory_that_was_removed_is_refused_in_words(
    flags: Flags, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ConfigurationError, match="the working directory is gone"):
        place_of(flags, "", "", {})


@cold
@pytest.mark.parametrize("which", ["state directory", "socket"])
def test_a_refused_directory_is_explained_by_the_check_that_the_hint_names(
    serve: Callable[..., Harness], which: str
) -> None:
    daemon = serve(start=False)
    place = daemon.root / "open"
    place.mkdir()
    place.chmod(0o777)
    if which == "socket":
        daemon.socket = str(place / "s")
    else:
        daemon.state = place / "state"
    code, words = daemon.refusal()
    assert code == 78 and f"others may write to {place}" in words
    assert words.rstrip().endswith(f"see clisup doctor ({which})")
    found = json.loads(run(daemon, "doctor", "--json", "demo").stdout)
    assert [f["check"] for f in found if f["status"] == "fail" and str(place) in f["detail"]] == [which]
