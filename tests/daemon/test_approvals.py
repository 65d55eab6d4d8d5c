"""A tool call that waits for a word: who may give it, that it is heard once whatever dies, and what happens when nobody does."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harness import Harness, until
from session_probe import SessionProbe
from test_dialogue import AGENT, told

from clisup.errors import ClisupError

ASK = 'ask Bash {"command": "git status"}'


@pytest.fixture
def agent(serve: Callable[..., Harness], tmp_path: Path) -> Callable[..., Harness]:
    """A daemon with the agent as its backend `agent`; `approvals` is the TOML of its table."""

    def start(approvals: str = "", **options: Any) -> Harness:
        command = json.dumps([sys.executable, str(AGENT), str(tmp_path / "told")])
        daemon = serve(**options, raw=f'[backends.agent]\nkind = "acp"\ncommand = {command}\n{approvals}')
        daemon.answers = lambda: told(tmp_path / "told").count("an answer")  # type: ignore[attr-defined]
        return daemon

    return start


def rules(*tables: dict[str, Any], **more: Any) -> str:
    """The approvals table of the backend."""
    head = "[backends.agent.approvals]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in more.items())
    body = "".join(
        "[[backends.agent.approvals.rules]]\n" + "".join(f"{k} = {json.dumps(v)}\n" for k, v in table.items())
        for table in tables
    )
    return head + body


def waiting(session: SessionProbe, nth: int = 1) -> str:
    """The id of the nth approval, as soon as the CLI asks for it."""
    return str(session.await_event("approval_requested", nth)["approval_id"])


def answer(session: SessionProbe, approval_id: str, decision: str, **more: Any) -> Any:
    return session.daemon.call(
        "approval/respond", session_id=session.id, approval_id=approval_id, decision=decision, **more
    )


# Asking and answering


def test_a_tool_call_waits_for_a_word_and_goes_on_with_it(agent: Callable[..., Harness]) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    turn = session.prompt(f"{ASK}\nsay done")
    approval = waiting(session)
    (listed,) = daemon.call("approval/list")["approvals"]
    assert (listed["approval_id"], listed["session_id"], listed["turn_id"]) == (approval, session.id, turn)
    assert (listed["tool_name"], listed["input"]) == ("Bash", {"command": "git status"})
    assert (listed["reason"], listed["tool_use_id"]) == ("Bash?", "c1")
    assert [option["kind"] for option in listed["suggestions"]] == ["allow_once", "allow_always", "reject_once"]
    detail = session.get()
    assert (detail["approvals"], detail["phase"], detail["timers"]) == (1, "approval", [])
    assert answer(session, approval, "allow") == {
        "approval_id": approval, "session_id": session.id, "decision": "allow"
    }  # fmt: skip
    end = session.end_of(turn)
    assert (end["outcome"], end["text"], end.get("denied") or []) == ("completed", "[allow_once]done", [])
    (resolved,) = session.events("approval_resolved")
    assert (resolved["decision"], resolved["by"], resolved["tool_name"]) == ("allow", "client", "Bash")
    assert resolved["actor"]["pid"] > 0 and resolved["source"] == "daemon"
    assert daemon.call("approval/list", session_id=session.id) == {"approvals": []}
    assert session.get()["approvals"] == 0


def test_a_denied_tool_is_named_at_the_turns_end(agent: Callable[..., Harness]) -> None:
    session = agent().new(backend="agent")
    turn = session.prompt(f"{ASK}\nsay done")
    answer(session, waiting(session), "deny", message="not today")
    end = session.end_of(turn)
    assert (end["outcome"], end["text"], end["denied"]) == ("completed", "[reject_once]done", ["Bash"])
    assert session.events("approval_resolved")[0]["message"] == "not today"


def test_what_is_to_be_remembered_is_asked_of_the_cli(agent: Callable[..., Harness]) -> None:
    session = agent().new(backend="agent")
    turn = session.prompt(ASK)
    answer(session, waiting(session), "allow", remember=True)
    assert session.end_of(turn)["text"] == "[allow_always]"
    assert session.events("approval_resolved")[0]["remember"] is True


def test_a_word_that_the_cli_does_not_offer_is_refused_and_the_call_still_waits(agent: Callable[..., Harness]) -> None:
    session = agent().new(backend="agent")
    turn = session.prompt(ASK)
    approval = waiting(session)
    with pytest.raises(ClisupError) as refused:
        answer(session, approval, "allow", updated_input={"command": "ls"})
    assert refused.value.kind == "unsupported"
    answer(session, approval, "allow")
    assert session.end_of(turn)["text"] == "[allow_once]"


def test_approvals_of_one_turn_come_one_after_the_other(agent: Callable[..., Harness]) -> None:
    session = agent().new(backend="agent")
    turn = session.prompt("\n".join([ASK] * 3))
    for nth, decision in enumerate(("allow", "deny", "allow"), 1):
        answer(session, waiting(session, nth), decision)
    session.end_of(turn)
    assert [e["text"] for e in session.events("content_delta")] == ["[allow_once]", "[reject_once]", "[allow_once]"]


def test_without_a_session_the_approval_is_looked_for_and_two_of_one_id_are_told_apart(
    agent: Callable[..., Harness],
) -> None:
    daemon = agent()
    one = daemon.new(backend="agent")
    first = one.prompt(ASK)
    approval = waiting(one)
    two = daemon.new(backend="agent")
    second = two.prompt(ASK)
    assert waiting(two) == approval  # this agent numbers its questions
    with pytest.raises(ClisupError) as refused:
        daemon.call("approval/respond", approval_id=approval, decision="allow")
    assert refused.value.kind == "invalid_params" and set(refused.value.data["sessions"]) == {one.id, two.id}
    answer(two, approval, "deny")
    assert two.end_of(second)["text"] == "[reject_once]"
    assert daemon.call("approval/respond", approval_id=approval, decision="allow")["session_id"] == one.id
    assert one.end_of(first)["text"] == "[allow_once]"


# Who is too late


def test_of_two_clients_the_first_wins_and_the_second_learns_what_was_decided(agent: Callable[..., Harness]) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    turn = session.prompt(f"{ASK}\nsay done")
    approval = waiting(session)
    words: list[Any] = []

    def race(decision: str) -> None:
        with daemon.wire() as wire:
            try:
                words.append(
                    wire.call("approval/respond", approval_id=approval, session_id=session.id, decision=decision)
                )
            except ClisupError as error:
                words.append(error)

    racers = [threading.Thread(target=race, args=(word,)) for word in ("allow", "deny") * 4]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    (won,) = [word for word in words if isinstance(word, dict)]
    lost = [word for word in words if isinstance(word, ClisupError)]
    assert len(lost) == 7 and {(error.kind, error.code) for error in lost} == {("approval_already_resolved", -32033)}
    assert {error.data["decision"] for error in lost} == {won["decision"]}
    (resolved,) = session.events("approval_resolved")
    assert resolved["decision"] == won["decision"]
    session.end_of(turn)
    assert daemon.answers() == 1


def test_an_unknown_approval_is_not_found_and_an_old_one_is_known_as_resolved(agent: Callable[..., Harness]) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    turn = session.prompt(ASK)
    approval = waiting(session)
    for params in ({"session_id": session.id}, {}):
        with pytest.raises(ClisupError) as unknown:
            daemon.call("approval/respond", approval_id="1:nothing", decision="allow", **params)
        assert (unknown.value.kind, unknown.value.code) == ("approval_not_found", -32033)
    answer(session, approval, "allow")
    session.end_of(turn)
    daemon.restart()
    for params in ({"session_id": session.id}, {}):
        with pytest.raises(ClisupError) as late:
            daemon.call("approval/respond", approval_id=approval, decision="deny", **params)
        assert (late.value.kind, late.value.data["decision"]) == ("approval_already_resolved", "allow")


def test_an_interrupt_cancels_what_waits_in_the_clis_own_words(agent: Callable[..., Harness]) -> None:
    session = agent().new(backend="agent")
    turn = session.prompt(f"{ASK}\nsay never")
    approval = waiting(session)
    assert session.call("interrupt")["outcome"] == "interrupted"
    assert session.end_of(turn)["error"]["kind"] == "cancelled"
    (resolved,) = session.events("approval_resolved")
    assert (resolved["decision"], resolved["by"]) == ("cancelled", "end") and resolved["actor"]["pid"] > 0
    assert session.events("process_exited")[0]["exit_code"] == 0
    with pytest.raises(ClisupError) as late:
        answer(session, approval, "allow")
    assert late.value.kind == "approval_already_resolved"


def test_a_cli_that_dies_while_it_asks_leaves_nothing_open(agent: Callable[..., Harness]) -> None:
    session = agent().new(backend="agent")
    turn = session.prompt(ASK)
    waiting(session)
    assert session.call("interrupt", mode="kill")["outcome"] == "interrupted"
    assert session.end_of(turn)["outcome"] == "interrupted"
    assert [e["decision"] for e in session.events("approval_resolved")] == ["cancelled"]
    assert session.daemon.call("approval/list") == {"approvals": []}


# A restart of the daemon


def test_an_approval_outlives_the_daemon_and_is_answered_to_the_next_one(agent: Callable[..., Harness]) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    turn = session.prompt(f"say before\n{ASK}\nsay done")
    approval = waiting(session)
    for _ in range(2):
        daemon.restart()
        assert [a["approval_id"] for a in daemon.call("approval/list")["approvals"]] == [approval]
    answer(session, approval, "allow")
    assert session.end_of(turn)["text"] == "[allow_once]done"
    assert (len(session.events("approval_requested")), len(session.events("approval_resolved"))) == (1, 1)
    assert daemon.answers() == 1


@pytest.mark.fault(1)
@pytest.mark.parametrize(
    ("point", "decided"),
    [
        ("approval.before", False), ("say.journaled", True), ("approval.after", True), ("keeper.stdin.before@3", True),
        ("keeper.stdin.after@3", True),
    ],
)  # fmt: skip
def test_kill_9_around_an_answer_loses_none_and_doubles_none(
    agent: Callable[..., Harness], point: str, decided: bool
) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    daemon.kill()
    name, _, nth = point.partition("@")
    daemon.env["CLISUP_FAILPOINTS"] = f"{name}=kill@{nth or 1}"
    daemon.start()
    turn = session.prompt(f"{ASK}\nsay done\n{ASK}")
    approval = waiting(session)
    with daemon.wire() as wire:
        wire.post("approval/respond", approval_id=approval, session_id=session.id, decision="allow")
        assert daemon.process is not None
        daemon.process.wait(30)
    del daemon.env["CLISUP_FAILPOINTS"]
    daemon._hang_up()
    daemon.start()
    if decided:
        with pytest.raises(ClisupError) as late:
            answer(session, approval, "deny")
        assert (late.value.kind, late.value.data["decision"]) == ("approval_already_resolved", "allow")
    else:
        answer(session, approval, "allow")
    answer(session, waiting(session, 2), "deny")
    assert session.end_of(turn)["outcome"] == "completed"
    assert [e["text"] for e in session.events("content_delta")] == ["[allow_once]", "done", "[reject_once]"]
    assert [e["decision"] for e in session.events("approval_resolved")] == ["allow", "deny"]
    assert daemon.answers() == 2


def test_the_watchdog_watches_again_once_an_answer_came_also_after_a_restart(agent: Callable[..., Harness]) -> None:
    daemon = agent()
    session = daemon.new(backend="agent", timeouts={"tool_idle": 6000, "model_idle": 5000})
    session.prompt(f"{ASK}\nwait /nonexistent")
    answer(session, waiting(session), "allow")
    until(lambda: session.get()["phase"] == "tool")
    daemon.restart()
    until(lambda: session.get()["phase"] == "tool")
    assert [timer["limit_s"] for timer in session.get()["timers"]] == [6000]


# Rules


def test_rules_answer_by_themselves_and_the_event_names_the_rule(agent: Callable[..., Harness]) -> None:
    allow = {"tool": "Bash", "command": "git status*", "decision": "allow"}
    deny = {"tool": "Bash", "command": "rm *", "decision": "deny", "name": "never remove"}
    session = agent(rules(allow, deny)).new(backend="agent")
    turn = session.prompt(f'{ASK}\nask Bash {{"command": "git status; rm -rf /"}}\nask Bash {{"command": "ls"}}')
    approval = waiting(session, 3)
    assert [a["approval_id"] for a in session.daemon.call("approval/list")["approvals"]] == [approval]
    answer(session, approval, "allow")
    end = session.end_of(turn)
    told = [(e["decision"], e["by"], e.get("rule")) for e in session.events("approval_resolved")]
    assert told == [("allow", "rule", "backend 1"), ("deny", "rule", "never remove"), ("allow", "client", None)]
    assert end["denied"] == ["Bash"]


def test_a_sessions_rules_come_first_and_cannot_loosen_the_operators_deny(agent: Callable[..., Harness]) -> None:
    daemon = agent(rules({"tool": "Bash", "decision": "ask"}, {"tool": "Write", "decision": "deny"}))
    session = daemon.new(backend="agent", approvals={"rules": [{"tool": "*", "decision": "allow"}]})
    turn = session.prompt(f"{ASK}\nask Write")
    session.end_of(turn)
    told = [(e["decision"], e["rule"]) for e in session.events("approval_resolved")]
    assert told == [("allow", "session 1"), ("deny", "backend 2")]
    with pytest.raises(ClisupError) as other:
        daemon.call("session/new", backend="agent", cwd=str(daemon.cwd), session_id=session.id)
    assert other.value.kind == "session_exists"


def test_a_link_that_leads_out_of_the_directory_is_not_allowed_by_a_rule(agent: Callable[..., Harness]) -> None:
    daemon = agent(rules({"tool": "Edit", "path": "src/**", "decision": "allow"}))
    (daemon.cwd / "src").mkdir()
    (daemon.cwd / "src" / "out").symlink_to("/etc")
    session = daemon.new(backend="agent")
    paths = ("src/a.py", "src/out/passwd", "src/../../a.py")
    turn = session.prompt("\n".join(f'ask Edit {{"file_path": "{path}"}}' for path in paths))
    for nth in (2, 3):
        answer(session, waiting(session, nth), "deny")
    session.end_of(turn)
    assert [e["by"] for e in session.events("approval_resolved")] == ["rule", "client", "client"]


def test_no_client_is_so_fast_that_it_passes_a_deny_of_the_operators(agent: Callable[..., Harness]) -> None:
    daemon = agent(rules({"tool": "*", "path": "/**", "decision": "deny"}))  # it takes a look at the links first
    session = daemon.new(backend="agent")
    with daemon.wire() as wire:
        for nth in range(1, 21):  # answers to questions that have not been asked yet, and all the time
            wire.post("approval/respond", session_id=session.id, approval_id=f"1:{nth}", decision="allow")
        turn = session.prompt("\n".join(['ask Write {"path": "/etc/x"}'] * 20))
        for nth in range(1, 21):
            while not session.events("approval_resolved")[nth - 1 : nth]:
                wire.post("approval/respond", session_id=session.id, approval_id=f"1:{nth}", decision="allow")
        session.end_of(turn)
    assert {(e["decision"], e["by"]) for e in session.events("approval_resolved")} == {("deny", "rule")}
    assert len(session.events("approval_resolved")) == 20


def test_rules_that_came_with_a_restart_hold_for_what_still_waits(agent: Callable[..., Harness]) -> None:
    daemon = agent()
    session = daemon.new(backend="agent")
    turn = session.prompt(ASK)
    approval = waiting(session)
    daemon.kill()
    daemon.config.write_text(daemon.config.read_text() + rules({"tool": "*", "decision": "deny"}))
    daemon.start()
    with pytest.raises(ClisupError) as late:  # also where the client is there at once
        answer(session, approval, "allow")
    assert late.value.data["decision"] == "deny"
    assert session.end_of(turn)["text"] == "[reject_once]"
    assert session.events("approval_resolved")[0]["rule"] == "backend 1"


# Nobody is there


def test_by_default_an_approval_waits_although_nobody_is_there(agent: Callable[..., Harness]) -> None:
    daemon = agent(rules(unattended_after_s=0))
    session = daemon.new(backend="agent")
    turn = session.prompt(ASK)
    approval = waiting(session)
    assert session.get()["timers"] == [] and daemon.call("approval/list")["approvals"]
    answer(session, approval, "allow")
    assert session.end_of(turn)["text"] == "[allow_once]"


@pytest.mark.parametrize("whose", ["backend", "session"])
def test_where_nobody_is_there_the_policy_may_deny(agent: Callable[..., Harness], whose: str) -> None:
    daemon = agent(rules(unattended_after_s=0.1, **({"unattended": "deny"} if whose == "backend" else {})))
    params = {"approvals": {"unattended": "deny"}} if whose == "session" else {}
    session = daemon.new(backend="agent", **params)
    end = session.ask(ASK)
    assert (end["text"], end["denied"]) == ("[reject_once]", ["Bash"])
    (resolved,) = session.events("approval_resolved")
    assert (resolved["by"], resolved.get("actor")) == ("unattended", None)


def test_somebody_who_follows_the_session_is_waited_for_until_gone(agent: Callable[..., Harness]) -> None:
    daemon = agent(rules(unattended="deny", unattended_after_s=0.2))
    session = daemon.new(backend="agent")
    with daemon.wire() as wire:
        wire.call("session/subscribe", session_id=session.id)
        turn = session.prompt(f"{ASK}\n{ASK}")
        answer(session, waiting(session), "allow")
        waiting(session, 2)
        for _ in range(20):  # longer than the policy would have waited
            session.get()
            threading.Event().wait(0.05)
        assert len(session.events("approval_resolved")) == 1
    assert session.end_of(turn)["denied"] == ["Bash"]
    assert [e["by"] for e in session.events("approval_resolved")] == ["client", "unattended"]


# Who may not answer


def test_a_tool_of_the_session_cannot_answer_for_it(agent: Callable[..., Harness]) -> None:
    daemon = agent()
    one = daemon.new(backend="agent")
    first = one.prompt(ASK)
    approval = waiting(one)
    other = daemon.new(backend="agent")
    params = json.dumps({"approval_id": approval, "session_id": one.id, "decision": "allow"})
    said = other.ask(f"call approval/respond {params}\ncall approval/list {{}}")["text"]
    assert said.count("permission_denied") + said.count("hung up") == 2, said
    assert not one.events("approval_resolved")
    answer(one, approval, "deny")
    assert one.end_of(first)["text"] == "[reject_once]"


# A live process: claude's own words, as the demo speaks them

MADE = '@run Bash {"command": "echo made > made.txt"}'


@pytest.mark.parametrize("decision", ["allow", "deny"])
def test_a_live_process_is_answered_and_serves_the_next_turn(serve: Callable[..., Harness], decision: str) -> None:
    daemon = serve()
    session = daemon.new(mode="live")
    turn = session.prompt(MADE)
    approval = waiting(session)
    assert (session.get()["phase"], session.get()["approvals"]) == ("approval", 1)
    answer(session, approval, decision)
    end = session.end_of(turn)
    assert end["outcome"] == "completed" and (end.get("denied") or []) == ([] if decision == "allow" else ["Bash"])
    assert (daemon.cwd / "made.txt").exists() == (decision == "allow")
    assert [(e["decision"], e["by"]) for e in session.events("approval_resolved")] == [(decision, "client")]
    assert session.ask("again")["outcome"] == "completed"
    assert len(session.events("process_started")) == 1


@pytest.mark.fault(78)
@pytest.mark.parametrize("mode", ["live", "one-shot"])
def test_a_cli_that_asks_more_than_may_be_open_is_ended(serve: Callable[..., Harness], mode: str) -> None:
    daemon = serve(limits={"open_approvals": 3})
    session = daemon.new(mode=mode)
    asked = [
        {"type": "control_request", "request_id": f"r{number}",
         "request": {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}, "tool_use_id": f"c{number}"}}
        for number in range(20)
    ]  # fmt: skip
    end = session.ask("\n".join([*(f"@raw {json.dumps(frame)}" for frame in asked), "@stall"]))
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "resource_limit")
    assert "limits.open_approvals" in end["error"]["message"]
    opened = [event["approval_id"] for event in session.events("approval_requested")]
    assert 4 <= len(opened) <= 8  # what it asks while it is being ended is closed with it
    assert sorted(opened) == sorted(event["approval_id"] for event in session.events("approval_resolved"))
    assert session.events("process_exited")[-1]["ended_by"] == "approvals"


def test_an_approval_of_a_live_process_outlives_the_daemon(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    session = daemon.new(mode="live")
    session.ask("first")
    turn = session.prompt(MADE)
    approval = waiting(session)
    daemon.restart()
    answer(session, approval, "allow")
    assert session.end_of(turn)["outcome"] == "completed"
    assert (daemon.cwd / "made.txt").exists()
    assert len(session.events("process_started")) == 1


def test_an_interrupt_of_a_live_process_that_asks_leaves_the_process_and_nothing_open(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve()
    session = daemon.new(mode="live")
    turn = session.prompt(MADE)
    approval = waiting(session)
    assert session.call("interrupt")["outcome"] == "interrupted"
    session.end_of(turn)
    assert [(e["decision"], e["by"]) for e in session.events("approval_resolved")] == [("cancelled", "end")]
    with pytest.raises(ClisupError) as late:
        answer(session, approval, "allow")
    assert late.value.kind == "approval_already_resolved"
    assert session.ask("again")["outcome"] == "completed"
    assert len(session.events("process_started")) == 1
    assert not (daemon.cwd / "made.txt").exists()
