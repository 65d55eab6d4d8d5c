"""The files of a session: there or not, private, and gone when they should be."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from clisup.config.session_spec import SessionSpec
from clisup.errors import WorldError
from clisup.store.session_dir import SessionDir, list_sessions

SESSION, OTHER = "0d9c1c1e-0000-4000-8000-000000000000", "0d9c1c1e-0000-4000-8000-000000000001"
RECORDED = {"session.json", "journal/000000000001.jsonl"}
SPEC = SessionSpec(session_id=SESSION, backend="demo", cwd="/", created_at="t", digest="d", labels={"a": "b"})


@pytest.fixture
def session(tmp_path: Path) -> SessionDir:
    directory = SessionDir(str(tmp_path), SESSION)
    directory.create(SPEC, {"KEY": "canary-7f3a"}, "be brief", b'{"mcp":"canary-7f3a"}')
    return directory


def files(path: str) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in Path(path).rglob("*") if file.is_file()}


def test_what_was_created_is_found_again(session: SessionDir, tmp_path: Path) -> None:
    opened = session.opened()
    assert opened is not None and opened.spec == SPEC.model_copy(update={"journaled": True}) and not opened.refused
    assert session.secrets() == {"KEY": "canary-7f3a"}
    assert Path(session.system_prompt).read_text() == "be brief"
    assert list_sessions(str(tmp_path)) == [SESSION]


def test_secrets_are_in_private_files_alone(session: SessionDir) -> None:
    holding = {name for name, data in files(session.path).items() if b"canary" in data}
    assert holding == {"private/secrets.json", "private/mcp.json"}
    for root, directories, names in os.walk(session.path):
        assert all(os.stat(os.path.join(root, name)).st_mode & 0o777 == 0o700 for name in directories)
        assert all(os.stat(os.path.join(root, name)).st_mode & 0o777 == 0o600 for name in names)


def test_a_session_that_brought_nothing_private_has_no_such_files(tmp_path: Path) -> None:
    directory = SessionDir(str(tmp_path), SESSION)
    directory.create(SPEC, {}, None, None)
    assert set(files(directory.path)) == RECORDED
    assert directory.secrets() == {}


def test_the_tools_come_back_with_a_token_that_no_text_of_them_shows(tmp_path: Path) -> None:
    directory = SessionDir(str(tmp_path), SESSION)
    directory.create(SPEC, {}, None, None, [{"name": "add"}])
    tools = directory.read_tools()
    assert tools is not None and tools.definitions == [{"name": "add"}]
    assert tools.token.startswith(f"{SESSION}.") and tools.token not in f"{tools} {tools!r}"
    assert directory.brought_secrets() == [tools.token]
    directory.forget_secrets()
    assert directory.read_tools() is None and directory.brought_secrets() == []


def test_after_a_close_nothing_private_is_left_and_the_record_is(session: SessionDir) -> None:
    session.save_prompt("t1", {"text": "hello"})
    (said := Path(session.path, "runs", "1", "said")).mkdir(parents=True)
    (said / "token").write_text("a message that was kept for the CLI")
    session.forget_secrets()
    session.forget_secrets()
    assert set(files(session.path)) == RECORDED
    assert session.secrets() == {}
    assert session.load_prompt("t1") is None


def test_a_directory_without_its_session_file_is_no_session(tmp_path: Path) -> None:
    (tmp_path / "sessions" / OTHER).mkdir(parents=True)
    (tmp_path / "sessions" / "lost+found").mkdir()
    assert list_sessions(str(tmp_path)) == [OTHER]
    assert SessionDir(str(tmp_path), OTHER).load_spec() is None
    assert list_sessions(str(tmp_path / "absent")) == []


@pytest.mark.fault(61)
def test_a_session_file_of_a_later_version_is_read_and_one_that_is_none_is_refused(session: SessionDir) -> None:
    path = Path(session.path) / "session.json"
    path.write_text(SPEC.model_copy(update={"version": 9}).model_dump_json()[:-1] + ',"something_new":1}')
    assert (spec := session.load_spec()) is not None
    assert spec.version == 9
    path.write_text('{"backend":"demo"}')
    with pytest.raises(WorldError, match="session_id"):
        session.load_spec()


def test_a_prompt_is_kept_until_its_turn_is_over(session: SessionDir) -> None:
    prompt = {"text": "hello\nü", "expand": False}
    session.save_prompt("t1", prompt)
    stored = session.load_prompt("t1")
    assert stored is not None and {**stored, "salt": ""} == {**prompt, "salt": ""}
    session.drop_prompt("t1")
    session.drop_prompt("t1")
    assert session.load_prompt("t1") is None


def test_prompts_that_a_crash_left_behind_go_and_those_of_open_turns_stay(session: SessionDir) -> None:
    session.keep_prompts([])  # none was ever stored
    for turn in ("t1", "t2", "t10"):
        session.save_prompt(turn, {"text": turn})
    Path(session.path, "prompts", "t3.json.4711.tmp").write_text("half of a pro")
    session.keep_prompts(["t2"])
    assert os.listdir(Path(session.path, "prompts")) == ["t2.json"]


def test_a_run_has_its_files_and_a_blob_is_written_the_same_twice(session: SessionDir) -> None:
    run = session.run(7)
    assert (run.start_record(), run.exit_record()) == (None, None)
    run.create({"argv": ["x"]}, {"settings.json": "{}"})
    assert Path(run.scratch, "settings.json").read_text() == "{}"
    assert [stat.S_IMODE(os.stat(path).st_mode) for path in (run.scratch, f"{run.scratch}/settings.json")] == [
        0o700,
        0o600,
    ]
    run.drop_scratch()
    assert not os.path.exists(run.scratch)
    for _ in range(2):
        run.save_blob("blob-7-out-10-0", b"data")
    assert Path(run.blob_path("blob-7-out-10-0")).read_bytes() == b"data"
    run.declare_dead({"reason": "unknown"})
    assert run.exit_record() == {"reason": "unknown"}
    assert os.path.dirname(run.out) == os.path.dirname(run.lock) == os.path.join(session.path, "runs", "7")


def test_a_state_directory_that_cannot_be_written_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("in the way")
    with pytest.raises(WorldError, match="cannot make the directory") as caught:
        SessionDir(str(tmp_path), SESSION).create(SPEC, {}, None, None)
    assert caught.value.kind == "storage_failed"
