"""The journal proves a session's opening: what differs in its files is named, and the journal's values hold."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from clisup.config.session_spec import SessionApprovals, SessionSpec
from clisup.errors import UsageError, WorldError
from clisup.model.journal import encode_snapshot
from clisup.model.sessions.budget import Budget
from clisup.policy.approval_rules import ApprovalRule
from clisup.store.opened import opening
from clisup.store.session_dir import RunDir, SessionDir

SESSION = "0d9c1c1e-0000-4000-8000-000000000000"
DENY = ApprovalRule(tool="Bash", decision="deny")
SPEC = SessionSpec(
    session_id=SESSION,
    backend="demo",
    cwd="/",
    created_at="t",
    digest="d",
    permission_mode="plan",
    approvals=SessionApprovals(rules=(DENY,), unattended="deny"),
    budget=Budget(turns=3),
    timeouts={"idle": 5.0},
    labels={"a": "\u00fc"},
    journaled=True,
)


@pytest.fixture
def session(tmp_path: Path) -> SessionDir:
    directory = SessionDir(str(tmp_path), SESSION)
    directory.create(SPEC, {"KEY": "canary-7f3a"}, "be brief", None)
    return directory


def amend(session: SessionDir, **fields: Any) -> None:
    path = Path(session.path, "session.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def test_every_field_of_a_spec_is_in_the_journal_so_that_a_new_field_cannot_be_forgotten() -> None:
    full = {name: field.get_default(call_default_factory=True) for name, field in SessionSpec.model_fields.items()}
    kept = opening(SPEC, {})["spec"]
    again = SessionSpec.read(SESSION, json.loads(json.dumps(kept)))
    assert again == SPEC
    for name in SessionSpec.model_fields:  # a field that the journal leaves out has its default
        assert name in kept or getattr(SPEC, name) == full[name], name


def test_what_was_opened_is_proved_and_a_change_is_named_without_its_value(session: SessionDir) -> None:
    opened = session.opened()
    assert opened is not None and opened.spec == SPEC and opened.refused == ()
    amend(session, approvals={"rules": []}, cwd="/usr", unknown=1)
    opened = session.opened()
    assert opened is not None and opened.spec == SPEC and opened.refused == ("cwd", "approvals")


def test_a_file_that_cannot_be_read_is_refused_as_a_whole(session: SessionDir) -> None:
    path = Path(session.path, "session.json")
    for data in (b"", b"{", b'{"session_id": 7}', b"[]"):
        path.write_bytes(data)
        opened = session.opened()
        assert opened is not None and opened.spec == SPEC and opened.refused == ("all",)


def test_a_creation_that_a_crash_cut_short_is_no_session(session: SessionDir) -> None:
    Path(session.path, "session.json").unlink()
    assert session.opened() is None


def test_without_its_journal_a_session_is_refused(session: SessionDir) -> None:
    Path(session.journal, "000000000001.jsonl").unlink()
    with pytest.raises(WorldError, match="its journal is missing"):
        session.opened()
    amend(session, journaled=False)
    os.mkdir(session.runs)
    with pytest.raises(WorldError, match="its journal is missing"):
        session.opened()


def test_a_session_of_an_earlier_version_without_a_turn_keeps_its_denials_alone(session: SessionDir) -> None:
    Path(session.journal, "000000000001.jsonl").unlink()
    allow = {"tool": "*", "decision": "allow"}
    amend(session, journaled=False, approvals={"rules": [allow, DENY.model_dump()]})
    opened = session.opened()
    assert opened is not None and opened.files is None
    assert opened.spec.approvals.rules == (DENY,) and opened.spec.permission_mode is None
    assert opened.refused == ("permission_mode", "approvals")


def test_the_journal_of_another_session_or_a_newer_version_is_refused(session: SessionDir) -> None:
    head = Path(session.journal, "000000000001.jsonl")
    other = SPEC.model_copy(update={"session_id": SESSION.replace("0d9c", "ffff")})
    head.write_bytes(encode_snapshot({"opened": opening(other, {})}))
    with pytest.raises(WorldError, match="another session's"):
        session.opened()
    head.write_bytes(encode_snapshot({"opened": opening(SPEC.model_copy(update={"version": 9}), {})}))
    with pytest.raises(UsageError, match="a newer clisup"):
        session.opened()


def test_a_changed_private_file_counts_as_missing_and_no_digest_can_be_tried_after_the_close(
    session: SessionDir, tmp_path: Path
) -> None:
    opened = session.opened()
    assert opened is not None and set(opened.files or ()) == {"secrets.json", "system_prompt.txt"}
    proved = SessionDir(str(tmp_path), SESSION, opened.files)
    assert proved.spoiled() == [] and proved.read_system_prompt() == "be brief"
    Path(session.system_prompt).write_text("be evil")
    Path(session.mcp_config).write_text('{"mcpServers": {"x": {"command": "sh"}}}')
    assert proved.read_system_prompt() is None and proved.read_mcp_servers() is None
    with pytest.raises(WorldError, match=r"private/system_prompt.txt was changed"):
        proved.check(tools=False)
    session.forget_secrets()
    assert not Path(session.path, "private").exists()  # the salt went with the files


def test_a_changed_prompt_or_message_is_not_the_accepted_one(session: SessionDir) -> None:
    digest = session.save_prompt("t1", {"text": "hello"})
    assert session.save_prompt("t2", {"text": "hello"}) != digest  # salted
    Path(session.path, "prompts", "t1.json").write_text('{"text":"evil"}')
    assert session.load_prompt("t1", digest) is None and session.has_prompt("t1")
    run = RunDir(os.path.join(session.runs, "1"))
    token = run.save_message("deny\n")
    assert run.load_message(token) == "deny\n"
    Path(run.path, "said", token).write_text("salt\nallow\n")
    assert run.load_message(token) is None and run.keeps_message(token)


def test_a_recorded_cgroup_of_another_name_is_none(session: SessionDir) -> None:
    run = RunDir(os.path.join(session.runs, "1"))
    run.create({"turn_id": "t1", "cgroup": "/sys/fs/cgroup/user.slice"}, {})
    assert run.cgroup() is None
    run.amend_intent(cgroup=f"/tmp/clisup-{SESSION}-1")
    assert run.cgroup() is None


@pytest.mark.fault(91)
def test_old_prompts_go_and_what_is_not_the_daemons_stays(session: SessionDir, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = Path(session.path, "prompts")
    (prompts / "@eaDir").mkdir(parents=True)
    for name in ("t1.json", "t2.json", "t3.json.123.tmp"):
        (prompts / name).write_text("{}")
    session.keep_prompts(["t2"])
    assert sorted(path.name for path in prompts.iterdir()) == ["@eaDir", "t2.json"]

    def refuse(path: str) -> None:
        raise PermissionError(1, "Operation not permitted", path)

    monkeypatch.setattr(os, "unlink", refuse)
    session.keep_prompts([])  # a line in the log, and no reason not to read the session
    assert (prompts / "t2.json").exists()


@pytest.mark.fault(86)
def test_the_runs_of_a_copy_have_another_mark(session: SessionDir, tmp_path: Path) -> None:
    state = tmp_path / "state"
    shutil.copytree(tmp_path / "sessions", state / "sessions")
    original, copy = session.run(1).mark(), SessionDir(str(state), SESSION).run(1).mark()
    assert original[:2] == copy[:2] and original != copy
