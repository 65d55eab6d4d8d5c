"""`clisup batch` against a real daemon: nothing runs twice, whoever is killed."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import commands
import pytest
from harness import Harness, until

from clisup.cli.main import main
from clisup.client import reconnect


class Batch:
    """A file of prompts that note in `ran` that they ran. Gated lines end once `open_gate` was called."""

    def __init__(self, daemon: Harness, name: str) -> None:
        self.daemon = daemon
        self.dir = daemon.cwd / name
        self.dir.mkdir()
        self.file = self.dir / "prompts.jsonl"
        self._gate = self.dir / "go"

    def write(self, *prompts: str | dict[str, Any]) -> None:
        self.file.write_text("".join(json.dumps(prompt) + "\n" for prompt in prompts))

    def line(self, number: int, *, gated: bool = False) -> str:
        gate = f"; while [ ! -e {self._gate} ]; do sleep 0.02; done" if gated else ""
        return f"@bash echo {number} >> {self.dir}/ran{gate}\ndone {number}"

    @property
    def ran(self) -> list[int]:
        path = self.dir / "ran"
        return [int(line) for line in path.read_text().split()] if path.exists() else []

    def open_gate(self) -> None:
        self._gate.touch()

    def args(self, *more: str) -> list[str]:
        return ["batch", str(self.file), "-b", "demo", "-C", str(self.dir), *more]

    def run(self, *more: str) -> commands.Done:
        return commands.run(self.daemon, *self.args(*more))

    def begin(self, *more: str) -> subprocess.Popen[str]:
        return commands.begin(self.daemon, *self.args(*more))

    def results(self, *more: str) -> list[dict[str, Any]]:
        done = self.run("--json", *more)
        return sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda result: int(result["line"]))


@pytest.fixture
def batch(daemon: Harness, request: pytest.FixtureRequest) -> Batch:
    return Batch(daemon, request.node.name)


def test_each_line_has_a_result_and_the_worst_decides(batch: Batch) -> None:
    batch.write(
        "hello", {"prompt": "@error authentication"}, {"prompt": "x", "cwd": "/none"}, {"prompt": "y", "key": "k"}
    )
    done = batch.run("--label", "team=a")
    assert done.returncode == 1
    rows = [line.split()[:3] for line in done.stdout.splitlines()[1:5]]
    assert rows == [["1", "completed", "0"], ["2", "failed", "69"], ["3", "refused", "2"], ["4", "completed", "0"]]
    assert "line 2: authentication" in done.stdout and "line 3: invalid_params" in done.stdout
    assert "4 lines: 2 completed" in done.stderr and "--retry-failed" in done.stderr
    first = batch.results()[0]
    assert (first["ended_before"], first["text"], first["exit_code"]) == (True, "You said: hello", 0)
    detail = batch.daemon.call("session/get", session_id=first["session_id"])
    assert detail["state"] == "closed" and detail["labels"]["team"] == "a"


def test_lines_that_have_ended_are_not_run_again_and_new_lines_are(batch: Batch) -> None:
    batch.write(batch.line(1), batch.line(2))
    assert batch.run().returncode == 0
    batch.write(batch.line(3), batch.line(2), batch.line(1))
    done = batch.run()
    assert (done.returncode, sorted(batch.ran)) == (0, [1, 2, 3])
    assert "2 had ended before" in done.stderr and "--name NEW" in done.stderr
    assert batch.run("--name", "another").returncode == 0
    assert sorted(batch.ran) == [1, 1, 2, 2, 3, 3]


def test_a_killed_command_started_again_takes_up_what_runs(batch: Batch) -> None:
    batch.write(batch.line(1), *(batch.line(number, gated=True) for number in range(2, 7)))
    first = batch.begin("-j", "2")
    until(lambda: sorted(batch.ran) == [1, 2, 3])
    first.send_signal(signal.SIGKILL)
    first.communicate()
    second = batch.begin("-j", "2", "--json")
    assert second.stdout is not None
    first_result = second.stdout.readline()  # so it has begun, and the turns of the lines 2 and 3 run
    batch.open_gate()
    out, _ = second.communicate(timeout=commands.BOUND_S)
    results = {result["line"]: result for result in map(json.loads, [first_result, *out.splitlines()])}
    assert second.returncode == 0
    assert sorted(batch.ran) == [1, 2, 3, 4, 5, 6]
    assert results[1]["ended_before"] and not any(results[number]["ended_before"] for number in (4, 5, 6))
    assert all(result["text"].endswith(f"done {number}") for number, result in results.items())


def test_a_daemon_that_is_killed_costs_no_line_and_runs_none_twice(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    batch = Batch(daemon, "killed")
    batch.write(batch.line(1), *(batch.line(number, gated=True) for number in range(2, 7)))
    process = batch.begin("-j", "3")
    until(lambda: len(batch.ran) >= 4)
    daemon.kill()
    batch.open_gate()
    daemon.start()
    out, err = process.communicate(timeout=commands.BOUND_S)
    assert process.returncode == 0, err
    assert sorted(batch.ran) == [1, 2, 3, 4, 5, 6]
    assert out.count("completed") == 6


def test_a_daemon_that_stays_away_ends_the_command_and_the_batch_goes_on_later(
    serve: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    daemon = serve()
    batch = Batch(daemon, "away")
    batch.write(batch.line(1), batch.line(2, gated=True), batch.line(3))
    monkeypatch.setenv("CLISUP_SOCKET", daemon.socket)
    monkeypatch.setattr(reconnect, "RECONNECT_S", 0.5)

    def kill() -> None:
        until(lambda: len(batch.ran) == 2)
        daemon.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    code = main(batch.args("-j", "1"))
    killer.join()
    captured = capfd.readouterr()
    assert code == 3
    assert "the batch goes on" in captured.err and captured.out.splitlines()[1].split()[:2] == ["1", "completed"]
    daemon.start()
    batch.open_gate()
    assert batch.run().returncode == 0
    assert sorted(batch.ran) == [1, 2, 3]


def test_ctrl_c_interrupts_the_turns_and_begins_no_other(batch: Batch) -> None:
    batch.write(*(batch.line(number, gated=True) for number in range(1, 6)))
    process = batch.begin("-j", "2")
    until(lambda: len(batch.ran) == 2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=commands.BOUND_S)
    assert process.returncode == 130
    assert out.count("interrupted") >= 2 and "3 without an end" in err
    assert sorted(batch.ran) == [1, 2]
    open_ones = batch.daemon.call("session/list", limit=1000)["sessions"]
    assert not [row for row in open_ones if row["cwd"] == str(batch.dir)], "nothing is left behind"


def test_failed_lines_run_again_when_asked(batch: Batch) -> None:
    marker = batch.dir / "mended"
    flaky = f"@bash test -e {marker} || kill -9 $PPID\nfine"
    batch.write(batch.line(1), flaky)
    assert batch.run().returncode == 1
    marker.touch()
    assert [result["outcome"] for result in batch.results()] == ["completed", "failed"], "not without being asked"
    again = batch.results("--retry-failed")
    assert [(result["outcome"], result["ended_before"]) for result in again] == [
        ("completed", True),
        ("completed", False),
    ]
    assert [result["outcome"] for result in batch.results()] == ["completed", "completed"], "the last attempt counts"
    assert batch.ran == [1]


def test_after_a_failure_no_other_line_begins_when_asked(batch: Batch) -> None:
    batch.write("@error server", batch.line(2), batch.line(3))
    done = batch.run("-j", "1", "--stop-on-failure")
    assert done.returncode == 1 and "2 without an end" in done.stderr
    assert batch.ran == []
    batch.run()
    assert sorted(batch.ran) == [2, 3]


def test_sessions_stay_open_or_go_when_asked(batch: Batch) -> None:
    batch.write("one", "two")
    kept = batch.results("--keep", "--name", "kept")
    get = batch.daemon.call
    assert [get("session/get", session_id=result["session_id"])["state"] for result in kept] == ["idle", "idle"]
    assert batch.run("--rm", "--name", "gone").returncode == 0
    rows = get("session/list", labels={"batch": "gone"}, state="closed")["sessions"]
    assert rows == []
    batch.write("one", "@error server")
    assert batch.run("--rm", "--name", "stays").returncode == 1
    assert len(get("session/list", labels={"batch": "stays"}, state="closed")["sessions"]) == 2


def test_a_further_prompt_in_a_kept_session_does_not_change_the_result(batch: Batch) -> None:
    batch.write("one")
    [result] = batch.results("--keep")
    commands.run(batch.daemon, "run", "--session", result["session_id"], "another")
    assert batch.results("--keep")[0]["text"] == "You said: one"


def test_a_session_that_was_closed_before_its_prompt_is_no_end(batch: Batch) -> None:
    batch.write("one")
    [result] = batch.results("--name", "x")
    batch.daemon.call("session/delete", session_id=result["session_id"])
    params = {"backend": "demo", "cwd": str(batch.dir), "session_id": result["session_id"]}
    batch.daemon.call("session/new", **params)  # as by a command that was killed before it sent the prompt
    batch.daemon.call("session/close", session_id=result["session_id"])
    [again] = batch.results("--name", "x")
    assert (again["outcome"], again["session_id"] != result["session_id"]) == ("completed", True)


def test_a_refused_prompt_leaves_no_session_behind(serve: Callable[..., Harness], tmp_path: Path) -> None:
    daemon = serve(daemon={"max_sessions": 1})
    batch = Batch(daemon, "refused")
    other = daemon.new()
    batch.write("one")
    assert batch.results()[0]["error"]["kind"] == "limit_exceeded"
    other.call("close")
    assert batch.results()[0]["outcome"] == "completed", "a line that the daemon refused has not run"


def test_unknown_backends_are_refused_before_the_first_prompt(batch: Batch) -> None:
    batch.write(batch.line(1), {"prompt": "x", "backend": "nope"})
    done = batch.run()
    assert done.returncode == 2 and "line 2 wants the backend nope" in done.stderr
    assert batch.ran == []


def test_an_answer_by_a_schema_and_directories_as_lines(batch: Batch) -> None:
    (batch.dir / "a").mkdir()
    batch.file.write_text("a\n")
    schema = batch.dir / "schema.json"
    schema.write_text('{"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}')
    [result] = batch.results("--prompt", "Which port?", "--output-schema", str(schema))
    assert isinstance(result["structured"]["port"], int)
    detail = batch.daemon.call("session/get", session_id=result["session_id"])
    assert detail["cwd"] == str(batch.dir / "a")


def test_an_approval_that_waits_is_told_and_its_answer_goes_on(batch: Batch) -> None:
    batch.write({"prompt": '@ask Bash {"command": "ls"}', "mode": "live"})
    process = batch.begin()
    assert process.stderr is not None
    assert "1 approval waits for an answer: clisup approvals" in process.stderr.readline()
    [approval] = batch.daemon.call("approval/list")["approvals"]
    named = {"approval_id": approval["approval_id"], "session_id": approval["session_id"]}
    batch.daemon.call("approval/respond", **named, decision="allow")
    out, _ = process.communicate(timeout=commands.BOUND_S)
    assert process.returncode == 0 and "completed" in out
