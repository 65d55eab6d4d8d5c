"""`clisup debug bundle`: what a bug report needs, with a daemon and without; no secret and nobody's words in any byte of it."""

from __future__ import annotations

import io
import json
import os
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import Harness
from test_canaries import CANARY, CONFIG, play, secrets_in

from clisup import bundle
from clisup.config.model import parse_config
from clisup.host.files import write_json
from clisup.store.session_dir import SessionDir
from tests.journals import block_of

WORDS = ("prompt", "tool-input", "tool-result", "stderr", "answer", "system")
SECRET = [name for name in CANARY if name not in (*WORDS, "odd-frame", "argument")]
ENV = {"MY_OWN": CANARY["pass-env"], "ANTHROPIC_API_KEY": CANARY["inherited"]}
CONFIGURED = {**CONFIG, "args": []}
OTHER = f'[backends.other]\nkind = "demo"\nargs = ["--api-token", "{CANARY["argument"]}"]\n'


class Bundler:
    """The command, as the user of a daemon runs it."""

    def __init__(self, daemon: Harness) -> None:
        self.daemon = daemon
        self.path = daemon.root / "bundle.tar.gz"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        places = {
            "CLISUP_SOCKET": self.daemon.socket,
            "CLISUP_STATE_DIR": str(self.daemon.state),
            "CLISUP_CONFIG": str(self.daemon.config),
        }
        argv = [sys.executable, "-m", "clisup", "debug", "bundle", "-o", str(self.path), *words]
        return subprocess.run(
            argv,
            env={**self.daemon.env, **ENV, **places},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd="/",
        )

    def members(self, *words: str) -> dict[str, str]:
        """Run it; the files in what it wrote, by their names without the folder's."""
        self.path.unlink(missing_ok=True)
        ran = self.run(*words)
        assert ran.returncode == 0, ran.stderr
        with tarfile.open(self.path) as tar:
            files = {info.name.partition("/")[2]: tar.extractfile(info) for info in tar.getmembers()}
            return {name: file.read().decode() for name, file in files.items() if file is not None}


@pytest.fixture
def bundler(serve: Callable[..., Harness]) -> Bundler:
    return Bundler(serve(env=ENV, demo=CONFIGURED, raw=OTHER))


def test_it_holds_what_a_report_needs_and_no_canary_in_any_byte(bundler: Bundler) -> None:
    session = play(bundler.daemon)
    found = bundler.members("--session", session[:8])
    whole = "\n".join([*found, *found.values()])
    assert [name for name in CANARY if CANARY[name] in whole and name != "odd-frame"] == []
    assert "CanaryCanary" not in whole
    wanted = {"versions.json", "config.json", "doctor.json", "status.json", "log.json", "state.txt", "README.txt"}
    assert wanted | {f"sessions/{session}/{name}" for name in ("session.json", "events.jsonl", "runs/1.json")} <= set(
        found
    )
    assert json.loads(found["status.json"])["daemon"]["pid"] == bundler.daemon.pid
    assert json.loads(found["config.json"])["backends"]["demo"]["env"] == {"DEMO_TOKEN": "**********"}
    assert "[redacted]" in found["config.json"], "the value of --api-token"
    assert "turn ended" in found["log.json"] and "exit_code" in found[f"sessions/{session}/runs/1.json"]
    assert "out.spool" in found["state.txt"] and "-rw-------" in found["state.txt"]
    assert "LOOK AT IT BEFORE YOU SEND IT" in found["README.txt"]


def test_of_a_sessions_events_there_are_types_times_and_numbers(bundler: Bundler) -> None:
    session = play(bundler.daemon)
    events = [
        json.loads(line)
        for line in bundler.members("--session", session)[f"sessions/{session}/events.jsonl"].splitlines()
    ]
    stored = bundler.daemon.call("session/events", session_id=session, after_seq=0, limit=1000)["events"]
    same = ("seq", "type", "ts", "turn_id", "source")
    assert [[e.get(name) for name in same] for e in events] == [[e.get(name) for name in same] for e in stored]
    ends = [event for event in events if event["type"] == "turn_completed"]
    assert [end["outcome"] for end in ends] == ["completed", "failed", "failed"]
    assert ends[1]["error"]["kind"] == "authentication" and ends[1]["error"]["message"].keys() == {"chars"}
    assert ends[0]["usage"]["output_tokens"] > 0
    assert next(event for event in events if event["type"] == "turn_started")["prompt_preview"].keys() == {"chars"}


def test_words_are_in_it_only_where_they_were_asked_for_and_secrets_never(bundler: Bundler) -> None:
    session = play(bundler.daemon)
    refused = bundler.run("--with-content")
    assert refused.returncode == 2 and "--with-content goes with --session" in refused.stderr
    found = bundler.members("--session", session, "--with-content")
    whole = "\n".join(found.values())
    assert all(CANARY[name] in whole for name in ("prompt", "tool-input", "tool-result", "stderr", "answer"))
    assert [name for name in SECRET if CANARY[name] in whole] == []
    assert "HOLDS PROMPTS" in found["README.txt"]


def test_it_is_for_its_owner_alone_and_nothing_is_written_over(bundler: Bundler) -> None:
    os.umask(0o022)
    first = json.loads(bundler.run("--json").stdout)
    assert stat.S_IMODE(bundler.path.stat().st_mode) == 0o600
    assert first["bytes"] == bundler.path.stat().st_size and first["path"] == str(bundler.path)
    assert {"name": "state.txt", "bytes": first["members"][-2]["bytes"], "cut": False} in first["members"]
    before = bundler.path.read_bytes()
    again = bundler.run()
    assert again.returncode == 2 and "because the file exists" in again.stderr
    assert bundler.path.read_bytes() == before
    bundler.path.unlink()
    bundler.path.symlink_to(bundler.daemon.root / "elsewhere")
    assert bundler.run().returncode != 0 and not (bundler.daemon.root / "elsewhere").exists()
    bundler.path.unlink()
    told = bundler.run().stdout
    assert "Look at it before you send it." in told and "versions.json" in told


def test_it_works_with_the_daemon_down_and_with_a_configuration_that_is_wrong(bundler: Bundler) -> None:
    session = play(bundler.daemon)
    bundler.daemon.stop()
    found = bundler.members("--session", session)
    assert json.loads(found["status.json"]) == {"cannot": "no daemon answers"} and "log.txt" in found
    assert any(finding["check"] == "daemon" for finding in json.loads(found["doctor.json"]))
    assert secrets_in("\n".join(found.values()).replace(CANARY["odd-frame"], "")) == []
    good = bundler.daemon.config.read_text()
    bundler.daemon.config.write_text(good + f'\n[backends.third]\nsecret_thing = "{CANARY["configured"]}"\n')
    found = bundler.members("--session", session)
    assert "is not a known key" in json.loads(found["config.json"])["cannot"]
    assert CANARY["configured"] not in "\n".join(found.values())
    bundler.daemon.config.write_text(good)


def test_a_session_that_there_is_not_is_an_error_and_leaves_no_file(bundler: Bundler) -> None:
    ran = bundler.run("--session", "ffffffff")
    assert ran.returncode == 4 and "no session in" in ran.stderr and not bundler.path.exists()


def test_it_is_bounded(tmp_path: Path) -> None:
    from clisup.bundle import MAX_MEMBER, MAX_TOTAL, Archive

    archive = Archive(lambda text: text, folder="f", time=0)
    long = ("y" * 99 + "\n") * 100_000
    for number in range(10):
        archive.add(f"{number}.txt", f"first {number}\n{long}last\n", keep_end=number % 2 == 1)
    assert all(member.bytes <= MAX_MEMBER and member.cut for member in archive.members)
    assert sum(member.bytes for member in archive.members) <= MAX_TOTAL
    path = tmp_path / "b.tar.gz"
    assert archive.write(str(path)) == path.stat().st_size
    with tarfile.open(fileobj=io.BytesIO(path.read_bytes())) as tar:
        first, second = (tar.extractfile(f"f/{number}.txt") for number in (0, 1))
        assert first is not None and second is not None
        assert first.read().startswith(b"first 0\n") and second.read().endswith(b"\nlast\n")


def test_of_a_journal_that_is_larger_than_a_bundle_only_the_end_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle, "MAX_MEMBER", 1000)
    directory = SessionDir(str(tmp_path), "s")
    os.makedirs(directory.journal)
    event = {"session_id": "s", "ts": "2026-01-01T00:00:00.000000Z", "type": "status"}
    lines = [block_of(json.dumps({"seq": n, **event}).encode(), first=n) for n in range(1, 5001)]
    Path(directory.journal, "000000000001.jsonl").write_bytes(b"".join(lines))
    kept = [json.loads(line)["seq"] for line in bundle._events(directory, content=True)]
    assert kept == list(range(kept[0], 5001)) and 10 < len(kept) < 30


def test_a_file_of_a_session_that_cannot_be_read_lets_none_of_its_other_secrets_out(tmp_path: Path) -> None:
    directory = SessionDir(str(tmp_path), "3f2a77be-1c1d-4d8b-9a3e-0d6c5b0f9a11")
    os.makedirs(directory.mcp_config)  # a directory in the place of the file
    write_json(os.path.join(directory.path, "private", "secrets.json"), {"MY_TOKEN": CANARY["inherited"]})
    found = bundle._Machine({}, parse_config({}), "", str(tmp_path), None)
    bundle._learn_secrets(found)
    assert found.redact(f"it is {CANARY['inherited']}") == "it is [redacted]"


def test_what_is_sent_to_a_collector_is_known_as_a_secret(tmp_path: Path) -> None:
    config = parse_config({"tracing": {"headers": {"Authorization": "Basic a-canary-of-tracing"}}})
    found = bundle._Machine({}, config, "", str(tmp_path), None)
    bundle._learn_secrets(found)
    assert found.redact("sent Basic a-canary-of-tracing") == "sent [redacted]"
