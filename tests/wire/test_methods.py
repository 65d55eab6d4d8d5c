"""The method table and its models: strict in what they take, and free of surprises in what they give."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from clisup.config.model import TimeoutsConfig
from clisup.wire import params, results
from clisup.wire.methods import METHODS, Method, Role

SESSION = "0d9c1c1e-0000-4000-8000-000000000000"
SMALLEST: dict[str, dict[str, Any]] = {
    "account/report": {"account": "team"},
    "backend/env": {"name": "demo"},
    "backend/models": {"name": "groq"},
    "backend/sessions": {"cwd": "/"},
    "session/new": {"cwd": "/"},
    "session/prompt": {"session_id": SESSION, "prompt": "hello"},
    "session/blob": {"session_id": SESSION, "blob": "raw-1-out-0-10"},
    **{
        f"session/{name}": {"session_id": SESSION}
        for name in (
            "get",
            "interrupt",
            "compact",
            "context_usage",
            "fork",
            "diff",
            "land",
            "discard",
            "close",
            "delete",
            "subscribe",
            "unsubscribe",
            "events",
        )
    },
    "approval/respond": {"approval_id": "1:a", "decision": "allow"},
    "tool/serve": {"session_id": SESSION},
    "tool/result": {"session_id": SESSION, "call_id": "c1", "content": "4"},
    "bridge/hello": {"token": "t"},
    "bridge/call": {"call_id": "c1", "name": "add"},
    "session/set_model": {"session_id": SESSION, "model": "opus"},
    "session/set_permission_mode": {"session_id": SESSION, "permission_mode": "plan"},
    "session/set_title": {"session_id": SESSION, "title": "Nightly run"},
    "session/set_budget": {"session_id": SESSION, "budget": {}},
    "session/note": {"session_id": SESSION, "code": "client.stage", "message": "thinking"},
    "session/ack": {"session_id": SESSION, "name": "indexer", "seq": 1},
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_models_a_class_and_a_doc_line(name: str) -> None:
    method = METHODS[name]
    assert issubclass(method.params, params.Params)
    assert method.result is None or issubclass(method.result, results.Result)
    assert method.role in get_args(Role)
    assert method.doc.endswith(".")


@pytest.mark.parametrize("name", METHODS)
def test_every_method_takes_its_smallest_params_and_no_unknown_one(name: str) -> None:
    params = METHODS[name].params
    smallest = SMALLEST.get(name, {})
    params.model_validate(smallest)
    with pytest.raises(ValidationError, match="Extra inputs are not permitted"):
        params.model_validate({**smallest, "something_else": 1})


@pytest.mark.parametrize("name", SMALLEST)
def test_every_param_of_the_smallest_call_is_required(name: str) -> None:
    for missing in SMALLEST[name]:
        with pytest.raises(ValidationError, match="Field required"):
            METHODS[name].params.model_validate({k: v for k, v in SMALLEST[name].items() if k != missing})


def test_whatever_changes_something_is_not_open_to_an_observer() -> None:
    changing = {"daemon/shutdown", "daemon/restart", "daemon/reload", "daemon/gc"}
    changing |= {"backend/check", "backend/models"}  # they run the CLIs
    changing |= {"notify/test", "account/report"}
    changing |= {"approval/respond", "tool/serve", "tool/result", "bridge/hello", "bridge/call"}
    changing |= {f"session/{name}" for name in ("new", "prompt", "interrupt", "close", "delete", "fork")}
    changing |= {f"session/{name}" for name in ("compact", "set_model", "set_permission_mode", "context_usage")}
    changing |= {"session/note", "session/set_budget", "session/set_title", "session/land", "session/discard"}
    assert {name for name, method in METHODS.items() if method.role != "observe"} == changing
    assert METHODS["daemon/shutdown"].role == "admin"


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=200)
@given(st.data())
def test_params_of_any_shape_are_taken_or_refused_and_nothing_else(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(list(METHODS)))
    method: Method = METHODS[name]
    names = st.sampled_from([*method.params.model_fields, "other"])
    raw = {**SMALLEST.get(name, {}), **data.draw(st.dictionaries(names, json_values, max_size=3))}
    try:
        params = method.params.model_validate(raw)
    except ValidationError:
        return
    assert method.params.model_validate(params.model_dump(mode="python", exclude_unset=True)) == params


def refused(name: str, **params: Any) -> None:
    with pytest.raises(ValidationError):
        METHODS[name].params.model_validate({**SMALLEST.get(name, {}), **params})


@pytest.mark.parametrize(
    "session_id", ["", "x", SESSION.upper(), SESSION + "\n", SESSION[:-1], f"../{SESSION}", f"{SESSION}/..", 5, None]
)
def test_a_session_id_is_a_lower_case_uuid_and_no_path(session_id: Any) -> None:
    refused("session/get", session_id=session_id)


@pytest.mark.parametrize("cwd", ["", "relative", "./x", "~", "/a\0b", "x" * 10, "/" + "x" * 4096])
def test_a_working_directory_is_an_absolute_path(cwd: str) -> None:
    refused("session/new", cwd=cwd)


@pytest.mark.parametrize("model", ["", "-x", "--resume", "a\nb", "a\0", "x" * 257])
def test_a_model_name_cannot_become_an_option_or_a_second_line(model: str) -> None:
    refused("session/new", model=model)


@pytest.mark.parametrize(
    "blob",
    ["", "raw", "../raw-1-out-0-1", "raw-1-out-0-1/x", "blob-1-out-..\n", "raw-1-in-0-1", "BLOB-1-out-0", "a" * 200],
)
def test_the_name_of_a_blob_is_no_path(blob: str) -> None:
    refused("session/blob", blob=blob)


@pytest.mark.parametrize("approval_id", ["", "a", ":a", "1:", "0:a", "-1:a", "1:\n", "1:" + "a" * 600, 1, None])
def test_an_approvals_id_begins_with_its_run(approval_id: Any) -> None:
    refused("approval/respond", approval_id=approval_id)


@pytest.mark.parametrize("decision", ["ask", "cancelled", "", None, True])
def test_a_client_allows_or_denies(decision: Any) -> None:
    refused("approval/respond", decision=decision)


@pytest.mark.parametrize("rule", [{}, {"tool": "*"}, {"tool": "*", "decision": "allow", "x": 1}, "allow"])
def test_a_rule_of_a_session_is_checked_as_one_of_the_configuration(rule: Any) -> None:
    refused("session/new", approvals={"rules": [rule]})


@pytest.mark.parametrize("prompt", [5, None, {"type": "text", "text": "x"}, [{"type": "image", "data": "x"}], ["x"]])
def test_a_prompt_is_text_or_text_blocks(prompt: Any) -> None:
    refused("session/prompt", prompt=prompt)


def test_text_blocks_become_one_text() -> None:
    prompt = params.PromptParams(session_id=SESSION, prompt=[{"type": "text", "text": t} for t in ("a", "b")])  # type: ignore[list-item]
    assert prompt.text == "a\nb"
    assert params.PromptParams(session_id=SESSION, prompt="c").text == "c"


@pytest.mark.parametrize("value", ["1", True, 1.5, -1, 2**60])
def test_numbers_are_not_guessed(value: Any) -> None:
    refused("session/events", after_seq=value)
    refused("session/blob", limit=value)


@pytest.mark.parametrize("value", ["1", -1, float("nan"), float("inf"), 1e9])
def test_a_timeout_is_a_number_of_seconds_within_a_year(value: Any) -> None:
    refused("session/new", timeouts={"turn": value})


def test_a_session_may_set_every_timeout_of_the_configuration() -> None:
    assert set(params.Timeouts.model_fields) == set(TimeoutsConfig.model_fields)


def test_answers_that_take_the_daemon_milliseconds_are_made_one_at_a_time_for_each_client() -> None:
    large = {name for name, method in METHODS.items() if method.large}
    assert {"daemon/status", "daemon/metrics", "daemon/log", "rpc.discover", "session/events", "session/blob"} <= large
