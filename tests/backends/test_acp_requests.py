"""Requests of ACP agents to their user: elicitations and questions become approvals, and the answers reach the agent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clisup.backends.acp.adapter import AcpAdapter
from clisup.backends.approvals import ApprovalAnswer
from clisup.backends.base import Carried, Decoded, Decoder, LaunchRequest
from clisup.cli.views.form import answer_of, form_of
from clisup.errors import UsageError
from clisup.model.events import ApprovalRequested
from clisup.model.lines.framing import Line
from tests.backends.recorded import Recording

CLAUDE = "acp/claude-agent-acp-0.101.0"
CODEX = "acp/codex-acp-2.6.0"
QWEN = "acp/qwen-0.24.4"
ALLOW, DENY, CANCELLED = ApprovalAnswer("allow"), ApprovalAnswer("deny"), ApprovalAnswer("cancelled")
BY_RULE = ApprovalAnswer("allow", by_rule=True)
ORDER = {"name": "Ada", "count": 3, "colour": "blue", "size": "l", "extras": ["s", "l"], "gift": True}
FORM = {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]}


def values(**content: Any) -> ApprovalAnswer:
    return ApprovalAnswer("allow", updated_input={"message": "is ignored", "content": content})


def asked_in(name: str, tool: str = "elicitation") -> tuple[Decoder, ApprovalRequested]:
    """The decoder of a recording that has heard the approval of this tool, and the approval."""
    recording = Recording.of(name)
    decoder = recording.adapter.decoder(recording.carried, recording.request)
    for line in recording.lines():
        for event in decoder.decode(line).events:
            if isinstance(event, ApprovalRequested) and event.tool_name == tool:
                return decoder, event
    raise AssertionError(f"{name} asks for no {tool}")


def result(decoder: Decoder, approval_id: str, answer: ApprovalAnswer) -> Any:
    return json.loads(decoder.answer(approval_id, answer) or "")["result"]


def hear(decoder: Decoder, **frame: Any) -> Decoded:
    data = json.dumps({"jsonrpc": "2.0", **frame}).encode()
    return decoder.decode(Line(0, len(data) + 1, data))


def prompted() -> Decoder:
    request = LaunchRequest(("agent",), "hi", None, False, "/w")
    decoder = AcpAdapter().decoder(Carried(0.0), request)
    hear(decoder, id=0, result={"protocolVersion": 1})
    hear(decoder, id=1, result={"sessionId": "s"})
    return decoder


def elicit(decoder: Decoder, number: Any = 7, **params: Any) -> Decoded:
    return hear(decoder, id=number, method="elicitation/create", params={"sessionId": "s", "message": "?", **params})


# Elicitations


@pytest.mark.parametrize("agent", [CLAUDE, CODEX])
def test_a_form_of_an_mcp_server_is_an_approval_with_its_schema(agent: str) -> None:
    decoder, asked = asked_in(f"{agent}/elicitation")
    assert (asked.input["message"], asked.input["mode"]) == ("What shall it be?", "form")
    assert set(asked.input["requested_schema"]["properties"]) == set(ORDER)
    assert result(decoder, asked.approval_id, values(**ORDER)) == {"action": "accept", "content": ORDER}
    assert result(decoder, asked.approval_id, DENY) == {"action": "decline"}
    assert result(decoder, asked.approval_id, CANCELLED) == {"action": "cancel"}


@pytest.mark.parametrize("agent", [CLAUDE, CODEX])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("elicitation", {"action": "accept", "content": ORDER}),
        ("elicitation_declined", {"action": "decline"}),
        ("elicitation_url", {"action": "accept", "content": {}}),
    ],
)
def test_the_answer_reaches_the_mcp_server(agent: str, name: str, told: Any) -> None:
    (tool,) = Recording.of(f"{agent}/{name}").events("tool_result")
    assert json.dumps(told).replace('"', '\\"') in tool.content or json.loads(tool.content) == told


@pytest.mark.parametrize("agent", [CLAUDE, CODEX])
def test_an_address_of_an_mcp_server_is_accepted_without_values(agent: str) -> None:
    decoder, asked = asked_in(f"{agent}/elicitation_url")
    assert asked.input == {"message": "Log in, please.", "mode": "url", "url": "https://example.com/login?id=1"}
    assert result(decoder, asked.approval_id, ALLOW) == {"action": "accept"}


@pytest.mark.parametrize("agent", [CLAUDE, CODEX])
def test_an_elicitation_ends_with_its_cancelled_turn(agent: str) -> None:
    recording = Recording.of(f"{agent}/elicitation_cancelled")
    _, asked = asked_in(f"{agent}/elicitation_cancelled")
    resolved = {event.approval_id: event.decision for event in recording.events("approval_resolved")}
    assert resolved[asked.approval_id] == "cancelled"
    assert recording.terminal().interrupted


def test_values_that_do_not_fit_are_refused_and_the_request_stays_open() -> None:
    decoder, asked = asked_in(f"{CLAUDE}/elicitation")
    with pytest.raises(UsageError, match='"count" must be a whole number') as refused:
        decoder.answer(asked.approval_id, values(**{**ORDER, "count": 10}))
    assert refused.value.kind == "invalid_params"
    assert result(decoder, asked.approval_id, values(**ORDER))["action"] == "accept"


@pytest.mark.parametrize("name", [f"{CLAUDE}/elicitation", f"{CLAUDE}/elicitation_url", f"{CLAUDE}/question"])
def test_a_rule_accepts_no_elicitation(name: str) -> None:
    decoder, asked = asked_in(name)
    with pytest.raises(UsageError) as refused:
        decoder.answer(asked.approval_id, BY_RULE)
    assert refused.value.kind == "unsupported"


def test_questions_of_claude_agent_acp_are_a_form_below_its_tool() -> None:
    recording = Recording.of(f"{CLAUDE}/question")
    decoder, asked = asked_in(f"{CLAUDE}/question")
    (use,) = recording.events("tool_use")
    assert (use.name, use.tool_use_id) == ("AskUserQuestion", asked.tool_use_id)
    assert [question["header"] for question in use.input["questions"]] == ["Store", "Checks"]
    content = {"question_0": "Postgres", "question_1": ["lint", "unit"]}
    assert result(decoder, asked.approval_id, values(**content)) == {"action": "accept", "content": content}
    (told,) = recording.events("tool_result")
    assert '"Which database?"="Postgres"' in told.content and '"Which checks?"="lint, unit"' in told.content
    (told,) = Recording.of(f"{CLAUDE}/question_declined").events("tool_result")
    assert told.content == "The user did not answer the questions."


def test_questions_of_codex_acp_are_a_form() -> None:
    _, asked = asked_in(f"{CODEX}/question")
    fields = asked.input["requested_schema"]["properties"]
    assert [field["title"] for field in fields.values()][::2] == ["Which database?", "Which port?"]
    assert Recording.of(f"{CODEX}/question").terminal().text == "Thanks."


@pytest.mark.parametrize(
    ("name", "tool", "typed", "told"),
    [
        (f"{CLAUDE}/elicitation", "elicitation", ("Ada", "3", "blue", "2", "1,2", "yes"), {"content": ORDER}),
        (
            f"{CLAUDE}/question", "elicitation", ("2", "", "1,2", "and mine"),
            {"content": {"question_0": "Postgres", "question_1": ["lint", "unit"], "question_1_custom": "and mine"}},
        ),
        (
            f"{CODEX}/question", "elicitation", ("2", "", "3", "8080"),
            {"content": {"store": "Postgres", "port": "None of the above", "port_note": "8080"}},
        ),
        (f"{QWEN}/question", "ask_user_question", ("2", "1,2"), {"answers": {"0": "Postgres", "1": "lint, unit"}}),
    ],
)  # fmt: skip
def test_what_a_person_types_into_the_form_is_what_the_agent_gets(
    name: str, tool: str, typed: tuple[str, ...], told: dict[str, Any]
) -> None:
    decoder, asked = asked_in(name, tool)
    given = answer_of(form_of({"tool_name": asked.tool_name, "input": asked.input}), typed)
    answer = ApprovalAnswer("allow", updated_input=given["updated_input"])
    assert result(decoder, asked.approval_id, answer).items() >= told.items()


@pytest.mark.parametrize("agent", [CLAUDE, CODEX])
def test_the_form_shows_the_description_of_each_choice(agent: str) -> None:
    _, asked = asked_in(f"{agent}/question")
    head = form_of({"tool_name": asked.tool_name, "input": asked.input}).head()
    assert "  1) SQLite - one file" in head and "  2) Postgres - a server" in head


@pytest.mark.parametrize("params", [{}, {"mode": "voice"}, {"mode": "url"}, {"mode": "url", "url": ""}, {"mode": 7}])
def test_an_elicitation_of_an_unknown_form_gets_an_error_at_once(params: dict[str, Any]) -> None:
    got = elicit(prompted(), **params)
    assert [event.type for event in got.events] == ["unparsed"]
    (reply,) = got.replies
    assert json.loads(str(reply))["error"]["code"] == -32602


def test_an_elicitation_for_a_tool_that_the_agent_never_reported_invents_no_tool() -> None:
    got = elicit(prompted(), mode="form", requestedSchema=FORM, toolCallId="t")
    assert [event.type for event in got.events] == ["approval_requested"]


# Requests that the agent withdraws


def test_a_request_that_the_agent_cancels_is_answered_and_closed() -> None:
    decoder = prompted()
    elicit(decoder, mode="form", requestedSchema=FORM)
    got = hear(decoder, method="$/cancel_request", params={"requestId": 7})
    assert [(event.type, event.decision) for event in got.events] == [("approval_resolved", "cancelled")]  # type: ignore[attr-defined]
    assert [json.loads(str(reply))["error"]["code"] for reply in got.replies] == [-32800]
    assert decoder.answer("0:7", DENY) is None
    again = hear(decoder, method="$/cancel_request", params={"requestId": 7})
    assert (again.events, again.replies) == ([], ())


@pytest.mark.parametrize("params", [{}, {"requestId": None}, {"requestId": True}, {"requestId": [7]}])
def test_a_withdrawal_without_an_id_closes_nothing(params: dict[str, Any]) -> None:
    decoder = prompted()
    elicit(decoder, mode="form", requestedSchema=FORM)
    got = hear(decoder, method="$/cancel_request", params=params)
    assert ([event.type for event in got.events], got.replies) == (["unparsed"], ())
    assert result(decoder, "0:7", DENY) == {"action": "decline"}


# qwen's questions, which are a permission with answers


def test_questions_of_qwen_are_answered_by_their_places() -> None:
    decoder, asked = asked_in(f"{QWEN}/question", "ask_user_question")
    assert [question["question"] for question in asked.input["questions"]] == ["Which database?", "Which checks?"]
    given = {**asked.input, "answers": {"Which checks?": "lint, unit", "Which?": "is no question"}}
    assert result(decoder, asked.approval_id, ApprovalAnswer("allow", updated_input=given)) == {
        "outcome": {"outcome": "selected", "optionId": "proceed_once"}, "answers": {"1": "lint, unit"}
    }  # fmt: skip
    assert result(decoder, asked.approval_id, DENY) == {"outcome": {"outcome": "selected", "optionId": "cancel"}}
    (told,) = Recording.of(f"{QWEN}/question").events("tool_result")
    assert "**Store**: Postgres\n**Checks**: lint, unit" in told.content


@pytest.mark.parametrize("answers", ["Postgres", ["Postgres"], {"Which database?": 1}])
def test_answers_to_qwen_that_are_no_texts_are_refused(answers: Any) -> None:
    decoder, asked = asked_in(f"{QWEN}/question", "ask_user_question")
    with pytest.raises(UsageError, match="no object of texts") as refused:
        decoder.answer(asked.approval_id, ApprovalAnswer("allow", updated_input={"answers": answers}))
    assert refused.value.kind == "invalid_params"
    with pytest.raises(UsageError) as refused:
        decoder.answer(asked.approval_id, BY_RULE)
    assert refused.value.kind == "unsupported"
