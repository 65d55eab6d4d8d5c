"""Rules for approvals: what allows must be certain, what denies cannot be loosened, and what cannot be judged is forbidden."""

from __future__ import annotations

import string
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from clisup.policy.approval_rules import (
    DEPTH_LIMIT,
    TEXT_LIMIT,
    ApprovalRule,
    Judgement,
    ToolQuestion,
    commands_of,
    judge,
    lexical,
    paths_of,
)

CWD = "/home/me/app"


def rule(decision: str, tool: str = "*", **more: Any) -> ApprovalRule:
    return ApprovalRule.model_validate({"tool": tool, "decision": decision, **more})


def word(given: dict[str, Any], *rules: ApprovalRule, tool: str = "Bash", **more: Any) -> str:
    return judge(ToolQuestion(tool, given, CWD, **more), rules, ()).decision


def test_without_a_rule_that_matches_a_person_is_asked() -> None:
    assert judge(ToolQuestion("Bash", {}, CWD), (), ()) == Judgement("ask")
    assert judge(ToolQuestion("Bash", {}, CWD), (rule("allow", "Read"),), ()) == Judgement("ask")


def test_the_first_rule_that_matches_wins_the_sessions_before_the_backends_and_is_named() -> None:
    asked = ToolQuestion("Bash", {"command": "ls"}, CWD)
    assert judge(asked, (rule("ask"), rule("allow")), (rule("allow"),)) == Judgement("ask", "session 1")
    assert judge(asked, (rule("ask", "Read"),), (rule("ask", "Read"), rule("allow"))) == Judgement("allow", "backend 2")
    assert judge(asked, (rule("allow", name="mine"),), (rule("ask"),)) == Judgement("allow", "mine")


def test_a_deny_wins_wherever_it_stands_so_that_a_session_cannot_loosen_its_operators() -> None:
    asked = ToolQuestion("Bash", {"command": "ls"}, CWD)
    assert judge(asked, (rule("allow"),), (rule("allow"), rule("deny"))) == Judgement("deny", "backend 2")
    assert judge(asked, (rule("allow"), rule("deny")), (rule("allow"),)) == Judgement("deny", "session 2")


def test_a_tools_name_is_a_pattern_and_its_case_counts() -> None:
    assert word({}, rule("allow", "mcp__github__*"), tool="mcp__github__get") == "allow"
    assert word({}, rule("allow", "mcp__github__*"), tool="mcp__gitlab__get") == "ask"
    assert word({}, rule("allow", "bash")) == "ask"
    assert word({}, rule("allow", "B?sh")) == "allow"
    assert word({}, rule("allow", "[B]ash")) == "ask"  # nothing but * and ? is special


TRICKS = [
    "git status; rm -rf /", "git status && rm -rf /", "git status || rm x", "git status | sh", "git status & rm x",
    "git status $(rm x)", "git status `rm x`", "git status\nrm x", "git status\rrm x", "git status > /etc/passwd",
    "git status < /dev/tcp/x", "git status <(rm x)", "git status ${IFS}x", "git status $HOME", "git status \\\nx",
    "git status {a,b}", "(git status)", "git status\x00rm", "git status\x1b[2J", "git status\u2028rm x", "git status\x85rm",
]  # fmt: skip


@pytest.mark.parametrize("command", TRICKS)
def test_an_allow_for_a_command_matches_no_command_with_shell_syntax_in_it(command: str) -> None:
    assert word({"command": command}, rule("allow", command="git status*")) == "ask"
    assert word({"command": command}, rule("allow", command="*")) == "ask"
    assert word({"command": command}, rule("allow", command="*", shell=True)) == "allow"


PLAIN = st.text(alphabet=string.ascii_letters + string.digits + " -_./=:,@%+'\"*?[]~#!^", max_size=40)
SHELL = st.sampled_from([*";&|<>()$`\\{}\n\r\v\f\0\x1b\x7f\x85\u2028", "&&", "$(", "<("])


@given(PLAIN, SHELL, PLAIN, st.sampled_from(["git status*", "*", "git*", "git status *"]))
@example("git status ", ";", " rm -rf /", "git status*")
def test_no_piece_of_shell_syntax_gets_through_an_allow(before: str, syntax: str, after: str, pattern: str) -> None:
    for command in (f"git status{before}{syntax}{after}", f"{before}{syntax}{after}"):
        assert word({"command": command}, rule("allow", command=pattern)) == "ask"


@given(PLAIN)
def test_plain_words_get_through_where_the_pattern_fits(rest: str) -> None:
    assert word({"command": f"git status {rest}"}, rule("allow", command="git status *")) == "allow"
    assert word({"command": f"xgit status {rest}"}, rule("allow", command="git status *")) == "ask"


def test_a_variable_before_the_command_or_another_path_of_the_program_is_another_command() -> None:
    allow = rule("allow", command="git status*")
    for command in ("GIT_DIR=/x git status", "/tmp/git status", " git status", "sudo git status"):
        assert word({"command": command}, allow) == "ask"


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "git status; rm -rf /",
        "true && rm  -rf /",
        "echo $(rm -rf /)",
        "echo `rm -rf /`",
        "ls\nrm\t-rf /",
        "(rm -rf /)",
    ],
)
def test_a_deny_for_a_command_is_enough_in_one_piece_of_it(command: str) -> None:
    assert word({"command": command}, rule("allow"), rule("deny", command="rm *")) == "deny"
    assert word({"command": command}, rule("ask", command="rm *"), rule("allow")) == "ask"


def test_a_command_may_be_a_list_of_words_and_its_blanks_are_quoted_then() -> None:
    assert commands_of({"command": ["git", "status"]}) == ["git status"]
    assert word({"command": ["git", "status"]}, rule("allow", command="git status")) == "allow"
    assert word({"command": ["git status"]}, rule("allow", command="git status")) == "ask"
    assert word({"cmd": "git status"}, rule("allow", command="git status")) == "allow"


DECOYS = [
    {"cmd": "rm -rf /srv", "command": "git status"},
    {"cmd": "rm -rf /srv", "command": ""},
    {"command": "rm -rf /srv", "cmd": "git status"},
    {"command": "rm", "args": ["-rf", "/srv"]},
    {"command": "git status", "args": "; rm -rf /srv"},
]


@pytest.mark.parametrize("given", DECOYS)
def test_a_decoy_beside_the_command_turns_no_rule_round(given: dict[str, Any]) -> None:
    rules = (rule("deny", command="rm *"), rule("allow", command="git status*"))
    assert word(given, *rules) == "deny"
    assert word(given, rule("allow", command="*")) == "ask"
    assert word(given, rule("ask", command="rm *"), rule("allow")) == "ask"


def test_words_without_a_command_beside_them_are_no_command() -> None:
    assert word({"args": {"a": 1}}, rule("deny", command="*"), rule("allow")) == "allow"
    assert word({"command": "rm", "args": {"a": 1}}, rule("deny", command="ls"), rule("allow")) == "deny"


def test_a_command_that_is_none_matches_no_allow_and_every_deny() -> None:
    assert word({"command": 7}, rule("allow", command="*")) == "ask"
    assert word({"command": {"a": 1}}, rule("allow"), rule("deny", command="rm *")) == "deny"
    assert word({}, rule("allow", command="*")) == "ask"
    assert word({}, rule("deny", command="*")) == "ask"


@pytest.mark.parametrize("more", ["additional_permissions", "dangerouslyDisableSandbox"])
def test_an_allow_for_a_command_does_not_cover_a_request_for_more_rights(more: str) -> None:
    assert word({"command": "ls", more: True}, rule("allow", command="ls")) == "ask"
    assert word({"command": "ls", more: False}, rule("allow", command="ls")) == "allow"
    assert word({"command": "ls", more: True}, rule("allow")) == "allow"  # all of the tool is allowed


@pytest.mark.parametrize(
    ("path", "pattern", "fits"),
    [
        ("src/a.py", "src/**", True),
        ("/home/me/app/src/a.py", "src/**", True),
        ("src/deep/er/a.py", "src/**", True),
        ("src", "src/**", False),
        ("src/a.py", "src/*.py", True),
        ("src/deep/a.py", "src/*.py", False),
        ("src/deep/a.py", "src/**/*.py", True),
        ("src/a.py", "src/**/*.py", True),
        ("a.py", "**", True),
        ("/etc/passwd", "**", False),
        ("/etc/passwd", "/**", True),
        ("../other/a.py", "**", False),
        ("src/../../other/a.py", "src/**", False),
        ("src/../a.py", "src/**", False),
        ("src/./../src/a.py", "src/*", True),
        ("./src//a.py", "src/*", True),
        ("../app/src/a.py", "src/*", True),
        ("../../../../../etc/passwd", "/**", False),
        ("~/.ssh/id", "**", False),
        ("srcx/a.py", "src/**", False),
        ("/home/me/app2/a.py", "/home/me/app*/a.py", True),
        ("/home/me/app/x/a.py", "/home/me/app*/a.py", False),
        ("src/[a].py", "src/[a].py", True),
        ("src/a.py", "src/[a].py", False),
    ],
)
def test_a_path_is_made_plain_before_it_is_matched(path: str, pattern: str, fits: bool) -> None:
    assert word({"file_path": path}, rule("allow", path=pattern), tool="Edit") == ("allow" if fits else "ask")


def test_every_path_must_be_allowed_and_one_is_enough_for_a_deny() -> None:
    both = {"changes": [{"path": "src/a.py"}, {"path": "/etc/passwd"}]}
    assert word(both, rule("allow", path="src/**")) == "ask"
    assert word(both, rule("allow", path="src/**"), rule("deny", path="/etc/**")) == "deny"
    moved = {"changes": [{"path": "src/a.py", "move_path": "/etc/cron.d/a"}]}
    assert word(moved, rule("allow", path="src/**")) == "ask"
    assert word({"path": "src", "pattern": "x"}, rule("allow", path="**")) == "allow"


def test_a_link_that_leads_out_is_not_allowed_and_one_that_leads_in_is_denied() -> None:
    inside = rule("allow", path="src/**")
    assert word({"file_path": "src/link"}, inside, real=["/etc/passwd"], real_cwd=CWD) == "ask"
    assert word({"file_path": "src/a"}, inside, real=["/data/app/src/a"], real_cwd="/data/app") == "allow"
    assert word({"file_path": "src/link"}, inside, rule("deny", path="/etc/**"), real=["/etc/passwd"]) == "deny"


@pytest.mark.parametrize("path", [7, "", "a\0b", ["a"], {"a": 1}, "/" + "x" * 5000, "../../../../../x", "~root/x"])
def test_a_path_that_cannot_be_read_matches_no_allow_and_every_deny(path: Any) -> None:
    assert word({"file_path": path}, rule("allow", path="/**")) == "ask"
    assert word({"file_path": path}, rule("allow"), rule("deny", path="/etc/**")) == "deny"


def test_paths_are_found_where_tools_name_them() -> None:
    assert paths_of({"file_path": "a", "notebook_path": "b"}) == ["a", "b"]
    assert paths_of({"paths": ["a"], "locations": [{"path": "b"}, {"line": 1}]}) == ["a", "b"]
    assert paths_of({"command": "cat a"}) == []


def test_a_request_that_breaks_the_judge_is_denied() -> None:
    class Bad(dict):  # type: ignore[type-arg]
        def get(self, *_: Any) -> Any:
            raise RuntimeError("a fault")

    said = judge(ToolQuestion("Bash", Bad(), CWD), (rule("allow", command="*"),), ())
    assert said.decision == "deny" and "could not be judged" in str(said.rule)


@pytest.mark.parametrize(
    "table",
    [
        {"tool": "", "decision": "allow"},
        {"decision": "allow"},
        {"tool": "a\nb", "decision": "allow"},
        {"tool": "*", "decision": "yes"},
        {"tool": "*", "decision": "allow", "path": "../x"},
        {"tool": "*", "decision": "allow", "path": "a**b/c"},
        {"tool": "*", "decision": "allow", "pathh": "x"},
        {"tool": "*", "decision": "allow", "shell": 1},
    ],
)
def test_a_rule_that_cannot_mean_what_it_says_is_refused(table: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ApprovalRule.model_validate(table)


PARTS = st.lists(st.sampled_from(["..", ".", "", "a", "src", "~", "**", "\u202e", "x y"]), max_size=8).map("/".join)


@given(PARTS, st.sampled_from(["src/**", "**", "a/*", "/home/me/app/**"]))
def test_no_path_outside_the_directory_is_allowed_by_a_pattern_below_it(path: str, pattern: str) -> None:
    if word({"file_path": path}, rule("allow", path=pattern)) == "allow":
        plain = lexical(path, CWD)
        assert plain.startswith(f"{CWD}/") and ".." not in plain.split("/")


TOOLS = st.sampled_from(["Bash", "Edit", "mcp__a__b"])
INPUTS = st.fixed_dictionaries(
    {},
    optional={
        "command": st.one_of(st.text(max_size=30), st.lists(st.text(max_size=5), max_size=3), st.integers()),
        "file_path": st.one_of(PARTS, st.integers(), st.text(max_size=10)),
        "changes": st.lists(st.one_of(st.integers(), st.fixed_dictionaries({"path": PARTS})), max_size=3),
    },
)
RULES = st.lists(
    st.builds(
        lambda tool, decision, path, command: rule(decision, tool, path=path, command=command),
        st.sampled_from(["*", "Bash", "E*"]),
        st.sampled_from(["allow", "deny", "ask"]),
        st.sampled_from([None, "**", "src/*", "/etc/**"]),
        st.sampled_from([None, "*", "git *"]),
    ),
    max_size=4,
)


@given(tool=TOOLS, arguments=INPUTS, session=RULES, backend=RULES)
def test_a_sessions_rules_never_loosen_a_deny_of_the_operator(
    tool: str, arguments: dict[str, Any], session: list[ApprovalRule], backend: list[ApprovalRule]
) -> None:
    asked = ToolQuestion(tool, arguments, CWD)
    if judge(asked, (), backend).decision == "deny":
        assert judge(asked, session, backend).decision == "deny"


@given(tool=TOOLS, arguments=INPUTS, rules=RULES)
def test_a_rule_that_is_stricter_never_makes_more_allowed(
    tool: str, arguments: dict[str, Any], rules: list[ApprovalRule]
) -> None:
    asked = ToolQuestion(tool, arguments, CWD)
    without = [one for one in rules if one.decision != "deny"]
    if judge(asked, rules, ()).decision == "allow":
        assert judge(asked, without, ()).decision == "allow"


def test_a_hostile_text_takes_no_long_time() -> None:
    pattern = "a*" * 300 + "b"
    assert word({"command": "a" * 200_000}, rule("allow", command=pattern)) == "ask"
    path = "/".join(["a"] * 2000)
    assert word({"file_path": path}, rule("allow", path="/".join(["**", "a"] * 20) + "/b")) == "ask"


HIDDEN = [
    {"script": "rm -rf /srv"},
    {"code": "import x\nrm -rf /srv"},
    {"args": ["bash", "-lc", "rm -rf /srv"]},
    {"command": ["bash", "-lc", "rm -rf /srv"]},
    {"command": 'bash -lc "rm -rf /srv"'},
    {"argv": ["rm", "-rf", "/srv"]},
    {"program": "rm", "flags": ["-rf", "/srv"]},
    {"request": {"steps": [{"run": {"shell": "ls; rm -rf /srv"}}]}},
    {"actions": [["ls"], ["rm", "-r", 7]]},
    {"command": "git status", "then": {"cmd": "rm -rf /srv"}},
    {"command": "RM -rf /srv"},
    {"command": "\uff52\uff4d -rf /srv"},
    {"command": "r\u200bm -rf /srv"},
    {"command": "ls\r\nrm\t\t-rf /srv"},
]


@pytest.mark.parametrize("given", HIDDEN)
def test_a_deny_finds_its_command_in_every_text_of_the_input(given: dict[str, Any]) -> None:
    assert word(given, rule("allow"), rule("deny", command="rm *")) == "deny"
    assert word(given, rule("ask", command="rm *"), rule("allow")) == "ask"


@pytest.mark.parametrize(
    "beside",
    [
        {"script": "rm -rf /srv"},
        {"env": {"GIT_SSH_COMMAND": "git status"}},
        {"options": {"command": "rm -rf /srv"}},
        {"stdin": "rm"},
        {"shell": ["rm"]},
    ],
)
def test_an_allow_for_a_command_is_not_fooled_by_members_beside_it(beside: dict[str, Any]) -> None:
    given = {"command": "git status", **beside}
    assert word(given, rule("allow", command="git status*")) == "ask"
    assert word({"command": "git status", "description": "rm it"}, rule("allow", command="git status*")) == "allow"
    assert word({"script": "git status"}, rule("allow", command="git status*")) == "ask"


def test_the_same_command_beside_a_command_keeps_its_allow() -> None:
    given = {"command": "touch a", "commands": ["touch a"], "is_background": False}
    assert word(given, rule("allow", command="touch *")) == "allow"
    assert word({**given, "commands": ["touch a", "rm b"]}, rule("allow", command="touch *")) == "ask"


def test_a_deny_for_a_tool_ignores_case_and_an_allow_does_not() -> None:
    assert word({}, rule("deny", "mcp__mail__Send"), tool="mcp__MAIL__send") == "deny"
    assert word({}, rule("allow", "mcp__mail__Send"), tool="mcp__MAIL__send") == "ask"


@pytest.mark.parametrize(
    "given",
    [
        {"target": "/etc/passwd"},
        {"moves": [{"from": "a", "to": "/etc/passwd"}]},
        {"changes": {"/etc/passwd": {"kind": "add"}}},
        {"uri": "file:///etc/passwd"},
        {"options": {"output_file": "../../../etc/passwd"}},
    ],
)
def test_a_deny_finds_its_path_in_every_text_and_an_allow_does_not_overlook_a_path(given: dict[str, Any]) -> None:
    assert word(given, rule("allow"), rule("deny", path="/etc/**"), tool="Move") == "deny"
    if "moves" not in given and "changes" not in given:
        assert word({"file_path": "src/a", **given}, rule("allow", path="src/**"), tool="Move") == "ask"


def test_an_input_too_large_or_too_deep_to_judge_is_denied_by_a_deny_and_not_allowed() -> None:
    deep: dict[str, Any] = {}
    for _ in range(DEPTH_LIMIT + 1):
        deep = {"a": deep}
    large = {"command": "git status", "content": "x" * TEXT_LIMIT}
    for one in (deep, large):
        assert word(one, rule("allow"), rule("deny", command="rm *")) == "deny"
        assert word(one, rule("allow", command="*"), rule("ask", command="rm *")) == "ask"
        assert word(one, rule("allow")) == "allow"
