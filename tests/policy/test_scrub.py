"""The environment of a child: what passes, what never does, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict
from pydantic import SecretStr

from clisup.errors import ClisupError, ConfigurationError, UsageError
from clisup.policy.environment.scrub import (
    MAX_ENTRY_BYTES,
    EnvReport,
    RuleKind,
    RuleSet,
    build_environment,
    check_configuration,
)
from clisup.policy.environment.scrub_list import parse_list

CANARY = "canary-7f3a-value"


def rule_set(*, allow: str = "", scrub: str = "", deny: str = "", pairs: Sequence[str] = ()) -> RuleSet:
    """Rules from space-separated patterns."""
    texts: dict[RuleKind, list[str]] = {"allow": allow.split(), "scrub": [*scrub.split(), *pairs], "deny": deny.split()}
    lists = [
        parse_list("x", kind, "".join(f"{line} | why | where\n" for line in lines))
        for kind, lines in texts.items()
        if lines
    ]
    return RuleSet(tuple(r for part in lists for r in part.rules), tuple(p for part in lists for p in part.pairs))


RULES = rule_set(
    allow="PATH HOME LC_* KEY_HARMLESS NODE_EXTRA_CA_CERTS http_proxy",
    scrub="KEY_* BASE_URL NODE_* SSH_AUTH_SOCK",
    deny="LD_* NODE_OPTIONS CLISUP_*",
    pairs=["@pair BASE_URL: KEY_A KEY_B"],
)


def names(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [name for name, _ in pairs]


def build(inherited: Mapping[str, str], **arguments: object) -> dict[str, str]:
    return build_environment(inherited, RULES, **arguments)[0]  # type: ignore[arg-type]


class TestInheriting:
    def test_what_no_list_names_is_dropped(self) -> None:
        child, report = build_environment({"HOME": "/h", "MY_SECRET": CANARY}, RULES)
        assert child == {"HOME": "/h"}
        assert report == EnvReport((("HOME", "x.allow:HOME"),), (("MY_SECRET", "unlisted"),), ())

    def test_a_scrubbed_pattern_beats_an_allowed_pattern_but_not_an_allowed_name(self) -> None:
        rules = rule_set(allow="KEY_* KEY_HARMLESS", scrub="KEY_*")
        assert build_environment({"KEY_A": "a", "KEY_HARMLESS": "1"}, rules)[0] == {"KEY_HARMLESS": "1"}

    def test_a_scrubbed_name_beats_an_allowed_name(self) -> None:
        assert build_environment({"A_KEY": "a"}, rule_set(allow="A_KEY", scrub="A_KEY"))[0] == {}

    def test_scrub_and_deny_ignore_case_while_allow_does_not(self) -> None:
        inherited = {"key_a": "1", "Ld_Preload": "2", "path": "3", "HTTP_PROXY": "4", "http_proxy": "5"}
        child, report = build_environment(inherited, RULES)
        assert child == {"http_proxy": "5"}
        assert dict(report.dropped)["Ld_Preload"] == "x.deny:LD_*"

    @pytest.mark.parametrize("name", ["", "A B", "1A", "A=B", "A.B", "BASH_FUNC_f%%", "ÄA", "PATH\n"])
    def test_a_malformed_name_is_dropped_and_its_report_is_plain_text(self, name: str) -> None:
        child, report = build_environment({name: CANARY}, RULES)
        assert child == {}
        assert [rule for _, rule in report.dropped] == ["malformed"]
        assert all(n.isascii() for n in names(report.dropped))

    def test_an_undecodable_name_does_not_break_the_report(self) -> None:
        assert json.dumps(asdict(build_environment({"A\udcff": "x"}, RULES)[1])).encode()

    def test_a_value_with_nul_is_not_inherited(self) -> None:
        assert build({"PATH": "a\0b"}) == {}

    def test_the_order_of_the_daemons_environment_does_not_matter(self) -> None:
        inherited = {"PATH": "p", "HOME": "h", "LC_ALL": "C", "ZZ": "z"}
        forward, backward = (
            build_environment(dict(items), RULES) for items in (inherited.items(), [*inherited.items()][::-1])
        )
        assert forward == backward
        assert list(forward[0]) == sorted(forward[0])


class TestPassEnv:
    def test_a_name_passes_an_unlisted_and_a_scrubbed_variable(self) -> None:
        child, report = build_environment(
            {"MINE": "1", "SSH_AUTH_SOCK": "/s"}, RULES, pass_env=["MINE", "SSH_AUTH_SOCK"]
        )
        assert child == {"MINE": "1", "SSH_AUTH_SOCK": "/s"}
        assert report.kept == (("MINE", "pass_env:MINE"), ("SSH_AUTH_SOCK", "pass_env:SSH_AUTH_SOCK"))

    def test_a_pattern_passes_what_no_list_names(self) -> None:
        child, report = build_environment({"MINE_A": "1", "mine_b": "2"}, RULES, pass_env=["MINE_*"])
        assert child == {"MINE_A": "1"}
        assert report.kept == (("MINE_A", "pass_env:MINE_*"),)

    @pytest.mark.fault(77)
    @pytest.mark.parametrize("pattern", ["KEY_*", "KEY_SUB_*", "key_*", "NODE_*", "SSH_*", "BASE*"])
    def test_a_pattern_that_covers_a_scrubbed_name_is_refused_with_the_rule(self, pattern: str) -> None:
        with pytest.raises(ConfigurationError, match="one by one") as caught:
            build({}, pass_env=[pattern])
        assert caught.value.data["entry"] == pattern
        assert caught.value.data["rules"]

    @pytest.mark.fault(77)
    @pytest.mark.parametrize(
        "entry", ["LD_PRELOAD", "ld_preload", "NODE_OPTIONS", "CLISUP_STATE_DIR", "LD_*", "LD_PRE*"]
    )
    def test_a_denied_entry_is_refused(self, entry: str) -> None:
        with pytest.raises(ConfigurationError, match=r"x\.deny:"):
            check_configuration(RULES, pass_env=[entry], env_names=(), request_env=())

    @pytest.mark.parametrize("entry", ["", "*", "A*", "AB*", "A*B", "*_KEY", "MY KEY*", "A=secret", "A=secret*"])
    def test_an_entry_that_is_no_name_and_no_prefix_is_refused(self, entry: str) -> None:
        with pytest.raises(ConfigurationError) as caught:
            check_configuration(RULES, pass_env=[entry], env_names=(), request_env=())
        assert "secret" not in str(caught.value)


class TestSettingOnPurpose:
    def test_a_later_source_wins_over_an_earlier_one(self) -> None:
        child, report = build_environment(
            {"HOME": "inherited", "PATH": "inherited"},
            RULES,
            backend_sets={"HOME": "backend", "B": "backend", "C": "backend"},
            env={"B": SecretStr("env"), "C": "env"},
            request_env={"C": "request"},
            request_env_allowed=["C"],
            markers={"CLISUP_RUN": "r1"},
        )
        assert child == {"B": "env", "C": "request", "CLISUP_RUN": "r1", "HOME": "backend", "PATH": "inherited"}
        assert report.set == (("B", "env"), ("C", "request"), ("CLISUP_RUN", "marker"), ("HOME", "backend"))
        assert names(report.kept) == ["PATH"]

    def test_a_scrubbed_name_that_is_set_shows_as_dropped_and_as_set(self) -> None:
        child, report = build_environment({"KEY_A": "the daemon's"}, RULES, env={"KEY_A": SecretStr("meant")})
        assert child == {"KEY_A": "meant"}
        assert report.dropped == (("KEY_A", "x.scrub:KEY_*"),)
        assert report.set == (("KEY_A", "env"),)

    @pytest.mark.fault(36)
    @pytest.mark.parametrize("key", ["env", "backend_sets"])
    @pytest.mark.parametrize("name", ["LD_PRELOAD", "ld_preload", "NODE_OPTIONS", "CLISUP_RUN"])
    def test_a_denied_name_is_refused_from_every_source(self, key: str, name: str) -> None:
        with pytest.raises(ConfigurationError, match="forbids it from every source"):
            build({}, **{key: {name: CANARY}})

    def test_configuration_is_refused_at_start_already(self) -> None:
        for arguments in (
            {"env_names": ["LD_PRELOAD"]},
            {"request_env": ["NODE_OPTIONS"]},
            {"request_env": ["MINE_*"]},
        ):
            with pytest.raises(ConfigurationError):
                check_configuration(RULES, **({"pass_env": (), "env_names": (), "request_env": ()} | arguments))

    def test_markers_are_clisups_own_names(self) -> None:
        with pytest.raises(ValueError, match="CLISUP_"):
            build({}, markers={"LD_PRELOAD": "x"})

    @pytest.mark.parametrize("value", [f"{CANARY}\0", f"{CANARY}\ud800", CANARY * (MAX_ENTRY_BYTES // len(CANARY) + 1)])
    @pytest.mark.parametrize("source", ["env", "backend_sets", "request_env"])
    def test_a_value_that_execve_cannot_take_is_refused_without_telling_it(self, value: str, source: str) -> None:
        arguments: dict[str, object] = {source: {"MINE": value}, "request_env_allowed": ["MINE"]}
        with pytest.raises(UsageError, match="cannot set MINE") as caught:
            build({}, **arguments)
        assert isinstance(caught.value, ConfigurationError) is (source != "request_env")
        assert CANARY not in f"{caught.value!r} {caught.value} {caught.value.to_wire()}"
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__ or caught.value.__context__ is None

    def test_the_whole_environment_is_bounded(self) -> None:
        with pytest.raises(ConfigurationError, match="larger than"):
            build({}, env={f"V{i}": "x" * 130_000 for i in range(9)})


class TestRequests:
    def test_a_request_sets_what_request_env_lists(self) -> None:
        assert build({}, request_env={"KEY_A": "k"}, request_env_allowed=["KEY_A"]) == {"KEY_A": "k"}

    @pytest.mark.fault(77)
    @pytest.mark.parametrize(
        ("name", "rule"), [("MINE", "request_env"), ("KEY_A", "request_env"), ("NODE_OPTIONS", "x.deny:NODE_OPTIONS")]
    )
    def test_any_other_name_is_refused_by_name(self, name: str, rule: str) -> None:
        with pytest.raises(UsageError) as caught:
            build({}, request_env={name: CANARY})
        assert caught.value.kind == "permission_denied"
        assert (caught.value.data["name"], caught.value.data["rule"]) == (name, rule)
        assert CANARY not in str(caught.value.to_wire())

    def test_a_malformed_name_is_refused_without_what_follows_it(self) -> None:
        with pytest.raises(UsageError) as caught:
            build({}, request_env={f"KEY={CANARY}": "x"})
        assert caught.value.kind == "invalid_params"
        assert CANARY not in str(caught.value.to_wire())


@pytest.mark.fault(37)
class TestPairs:
    def test_neither_is_inherited(self) -> None:
        assert build({"KEY_A": "k", "BASE_URL": "u"}) == {}

    def test_both_can_be_passed_or_set(self) -> None:
        both = {"KEY_A": "k", "BASE_URL": "u"}
        assert build(both, pass_env=["KEY_A", "BASE_URL"]) == both
        assert build({}, env=both) == both
        assert build({"BASE_URL": "x"}, env=both) == both

    def test_a_key_passed_on_without_its_base_url_is_refused(self) -> None:
        with pytest.raises(ConfigurationError, match="cannot pass KEY_B on, because BASE_URL") as caught:
            build({"KEY_B": "k", "BASE_URL": "u"}, pass_env=["KEY_B"])
        assert "pass both" in caught.value.hint

    @pytest.mark.parametrize("how", [{"pass_env": ["BASE_URL"]}, {"env": {"BASE_URL": "other"}}])
    def test_a_base_url_whose_key_is_held_back_is_refused(self, how: dict[str, object]) -> None:
        with pytest.raises(ConfigurationError, match="because its key KEY_A is held back"):
            build({"KEY_A": "k", "BASE_URL": "u"}, **how)

    def test_a_base_url_alone_is_fine_where_no_key_was_held_back(self) -> None:
        assert build({}, env={"BASE_URL": "http://127.0.0.1:1"}) == {"BASE_URL": "http://127.0.0.1:1"}

    def test_an_empty_variable_of_the_daemon_is_none(self) -> None:
        assert build({"KEY_A": "", "BASE_URL": "u"}, pass_env=["BASE_URL"]) == {"BASE_URL": "u"}
        assert build({"KEY_A": "k", "BASE_URL": ""}, pass_env=["KEY_A"]) == {"KEY_A": "k"}

    def test_a_requests_base_url_needs_the_requests_own_key(self) -> None:
        allowed = ["BASE_URL", "KEY_A"]
        request = {"BASE_URL": "u", "KEY_A": "k"}
        assert build({}, request_env=request, request_env_allowed=allowed) == request
        for others in ({}, {"env": {"KEY_A": "k"}}, {"env": {"KEY_B": "k"}, "request_env": request}):
            with pytest.raises(UsageError) as caught:
                build({}, **({"request_env": {"BASE_URL": "u"}, "request_env_allowed": allowed} | others))
            assert caught.value.kind == "permission_denied"

    def test_a_requests_key_may_go_to_the_configured_base_url(self) -> None:
        child = build({}, env={"BASE_URL": "u"}, request_env={"KEY_A": "k"}, request_env_allowed=["KEY_A"])
        assert child == {"BASE_URL": "u", "KEY_A": "k"}


class TestParsing:
    def test_a_rule_knows_its_line_and_has_a_stable_id(self) -> None:
        parsed = parse_list(
            "claude", "scrub", "# head\n\n@include qwen\nABC_* | why | where\n@pair URL: K1 K2 | w | s\n"
        )
        assert (parsed.rules[0].id, parsed.rules[0].line, parsed.rules[0].reason) == ("claude.scrub:ABC_*", 4, "why")
        assert parsed.includes == ("qwen",)
        assert (parsed.pairs[0].id, parsed.pairs[0].credentials) == ("claude.pair:URL", ("K1", "K2"))

    @pytest.mark.fault(39)
    @pytest.mark.parametrize(
        "line",
        ["NAME", "NAME | why", "NAME | | where", "NAME | a | b | c", "NAME # why | where", "1A | w | s", "A-B | w | s"]
        + ["*_KEY | w | s", "A* | w | s", "* | w | s", "A*B | w | s", "@include", "@include common", "@include ../x"]
        + [
            "@pair A | w | s",
            "@pair A: | w | s",
            "@pair : A | w | s",
            "@other x | w | s",
            "\ufeffA | w | s",
            "FIRST | w | s",
        ],
    )
    def test_unknown_syntax_is_refused_with_file_and_line(self, line: str) -> None:
        with pytest.raises(ConfigurationError, match=r"/etc/x\.scrub, because of line 3: "):
            parse_list("x", "scrub", f"# head\nFIRST | w | s\n{line}\n", origin="/etc/x.scrub")

    @pytest.mark.fault(39)
    @pytest.mark.parametrize("text", ["", "\n", "# only a comment\n", "NAME | why | cut off"])
    def test_an_empty_or_cut_off_list_is_refused(self, text: str) -> None:
        with pytest.raises(ConfigurationError, match="cannot use the scrub list"):
            parse_list("x", "allow", text)

    def test_pairs_belong_into_scrub_lists(self) -> None:
        with pytest.raises(ConfigurationError, match="line 1"):
            parse_list("x", "allow", "@pair A: B | w | s\n")


NAMES = st.text(max_size=8) | st.sampled_from(
    ["PATH", "HOME", "LC_ALL", "KEY_A", "KEY_B", "KEY_HARMLESS", "key_a", "BASE_URL", "LD_PRELOAD", "ld_preload"]
    + ["NODE_OPTIONS", "NODE_DEBUG", "NODE_EXTRA_CA_CERTS", "SSH_AUTH_SOCK", "CLISUP_SOCKET", "MINE", "MINE_A"]
    + ["http_proxy", "HTTP_PROXY", "A=B"]
)
ENVIRONMENTS = st.dictionaries(NAMES, st.just(CANARY))


# Wild arguments are mostly refused; tame ones get through, so that what comes out is looked at as well.
TAME = ["HOME", "KEY_A", "KEY_B", "key_a", "KEY_HARMLESS", "BASE_URL", "NODE_DEBUG", "MINE"]
LISTED = st.lists(st.sampled_from(TAME)) | st.lists(NAMES)
GIVEN = st.dictionaries(st.sampled_from(TAME), st.just(CANARY), max_size=4) | ENVIRONMENTS


@given(ENVIRONMENTS, LISTED, GIVEN, GIVEN, st.just(TAME) | LISTED)
def test_whatever_is_asked_the_promises_hold(
    inherited: dict[str, str], passed: list[str], env: dict[str, str], request: dict[str, str], allowed: list[str]
) -> None:
    try:
        child, report = build_environment(
            inherited, RULES, pass_env=passed, env=env, request_env=request, request_env_allowed=allowed
        )
    except ClisupError as error:
        assert CANARY not in f"{error!r} {error.to_wire()}"
        return
    on_purpose = {*env, *request}
    for name in child:
        verdict = RULES.verdict(name)
        assert RULES.denied(name) is None
        assert name in on_purpose or name in passed or (verdict is not None and verdict.kind == "allow")
    assert sorted(child) == sorted([*names(report.kept), *names(report.set)])
    assert {*names(report.kept)}.isdisjoint(names(report.dropped))
    accounted = {*names(report.kept), *names(report.dropped), *names(report.set)}
    assert {name for name in inherited if name.isascii()} <= accounted
    assert CANARY not in repr(report)


@given(st.permutations([*RULES.rules]), ENVIRONMENTS)
def test_the_order_of_the_lines_does_not_matter(rules: list[object], inherited: dict[str, str]) -> None:
    assert build_environment(inherited, RuleSet(tuple(rules)))[0] == build_environment(inherited, RULES)[0]  # type: ignore[arg-type]


def test_a_list_that_is_meant_to_be_empty_says_so() -> None:
    assert parse_list("acp", "allow", "# why\n@nothing\n").rules == ()
    with pytest.raises(ConfigurationError, match="holds rules beside"):
        parse_list("acp", "allow", "@nothing\nHOME | where it lives | measured\n")


class TestClosedNames:
    def test_a_name_that_nothing_sets_is_set_to_nothing(self) -> None:
        child, report = build_environment({"HOME": "/h"}, RULES, closed=("BASE_URL",))
        assert child == {"BASE_URL": "", "HOME": "/h"}
        assert ("BASE_URL", "backend") in report.set

    def test_whoever_sets_it_wins(self) -> None:
        closed = ("HOME", "BASE_URL", "KEY_A", "C")
        child = build(
            {"HOME": "/h", "BASE_URL": "there"},
            closed=closed,
            pass_env=["BASE_URL"],
            env={"KEY_A": "key"},
            backend_sets={"C": "c"},
        )
        assert child == {"BASE_URL": "there", "C": "c", "HOME": "/h", "KEY_A": "key"}

    def test_a_closed_endpoint_is_no_endpoint_that_wants_a_key(self) -> None:
        assert build({"KEY_A": CANARY}, closed=("BASE_URL",)) == {"BASE_URL": ""}

    def test_a_denied_name_cannot_be_closed_either(self) -> None:
        with pytest.raises(ConfigurationError, match="forbids it"):
            build({}, closed=("LD_PRELOAD",))


def test_a_list_says_what_it_was_checked_with_and_when() -> None:
    stamp = parse_list("x", "allow", "# head\n# checked: claude 2.1.329, 2026-11-20\nA | w | s\n").checked
    assert stamp is not None
    assert (stamp.list_name, stamp.source, stamp.date) == ("x.allow", "claude 2.1.329", "2026-11-20")
    assert stamp.version_of("claude") == "2.1.329"
    assert stamp.version_of("codex") is None
    assert parse_list("x", "allow", "A | w | s\n").checked is None


@pytest.mark.parametrize(
    "text",
    [
        "# checked: yesterday\n",
        "# checked: claude 2.1.329, 20.11.2026\n",
        "# checked: a, 2026-01-01\n# checked: b, 2026-01-01\n",
    ],
)
def test_a_check_that_cannot_be_read_or_stands_twice_is_an_error(text: str) -> None:
    with pytest.raises(ConfigurationError, match="checked: SOURCE, YYYY-MM-DD"):
        parse_list("x", "allow", f"{text}A | w | s\n")
