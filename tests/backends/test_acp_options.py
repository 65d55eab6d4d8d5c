"""Options of an ACP agent's permission request: a choice among several is a person's, by the id of an option."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_acp import Conversation, prompted

from clisup.backends.approvals import ApprovalAnswer
from clisup.errors import UsageError

TARGETS = [("production", "allow_once"), ("staging", "allow_once"), ("no", "reject_once")]
KINDLESS = [("approve", None), ("approve_for_session", None), ("reject", None)]  # kimi-code #426


def asked(options: list[tuple[str, str | None]]) -> Conversation:
    talk = prompted()
    listed = [{"optionId": name, "name": name.title(), **({"kind": kind} if kind else {})} for name, kind in options]
    params = {"sessionId": "s", "toolCall": {"toolCallId": "t", "kind": "other"}, "options": listed}
    talk.hear({"jsonrpc": "2.0", "id": 5, "method": "session/request_permission", "params": params})
    return talk


def chosen(talk: Conversation, answer: ApprovalAnswer) -> Any:
    return json.loads(str(talk.decoder.answer("0:5", answer)))["result"]["outcome"].get("optionId")


@pytest.mark.fault(94)
@pytest.mark.parametrize("options", [TARGETS, KINDLESS])
def test_a_plain_allow_takes_none_of_several_options(options: list[tuple[str, str | None]]) -> None:
    talk = asked(options)
    for by_rule in (False, True):
        with pytest.raises(UsageError) as refused:
            talk.decoder.answer("0:5", ApprovalAnswer("allow", by_rule=by_rule))
        assert refused.value.kind == "option_needed"
        assert options[0][0] in str(refused.value.hint) and options[1][0] in str(refused.value.hint)
    assert chosen(talk, ApprovalAnswer("allow", option=options[1][0])) == options[1][0]


@pytest.mark.parametrize("options", [TARGETS, KINDLESS])
def test_a_refusal_needs_no_option(options: list[tuple[str, str | None]]) -> None:
    outcome = json.loads(str(asked(options).decoder.answer("0:5", ApprovalAnswer("deny"))))["result"]["outcome"]
    assert outcome == ({"outcome": "selected", "optionId": "no"} if options is TARGETS else {"outcome": "cancelled"})


def test_one_option_that_allows_needs_no_name_and_may_have_one() -> None:
    plain = [("once", "allow_once"), ("always", "allow_always"), ("ever", "allow_persistent"), ("no", "reject_once")]
    for answer, option in (
        (ApprovalAnswer("allow"), "once"),
        (ApprovalAnswer("allow", remember=True), "always"),
        (ApprovalAnswer("allow", option="ever"), "ever"),
        (ApprovalAnswer("deny", option="no"), "no"),
    ):
        assert chosen(asked(plain), answer) == option


@pytest.mark.parametrize(("decision", "option"), [("allow", "unheard-of"), ("allow", "no"), ("deny", "staging")])
def test_an_option_that_is_not_offered_or_says_the_opposite_is_refused(decision: Any, option: str) -> None:
    talk = asked(TARGETS)
    with pytest.raises(UsageError) as refused:
        talk.decoder.answer("0:5", ApprovalAnswer(decision, option=option))
    assert (refused.value.kind, refused.value.data["param"]) == ("invalid_params", "option")
    assert chosen(talk, ApprovalAnswer("allow", option="staging")) == "staging"


def test_a_request_without_options_takes_no_option() -> None:
    talk = asked([])
    with pytest.raises(UsageError) as refused:
        talk.decoder.answer("0:5", ApprovalAnswer("deny", option="no"))
    assert refused.value.kind == "unsupported"
