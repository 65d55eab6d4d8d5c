"""`output_schema` of session/prompt: an answer that is a JSON value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harness import Harness

from clisup.errors import ClisupError

SCHEMA = {"type": "object", "properties": {"port": {"type": "integer", "minimum": 80}}, "required": ["port"]}
OTHER = {"type": "object", "properties": {"name": {"type": "string"}}}


def refused(kind: str, call: Callable[[], Any]) -> ClisupError:
    with pytest.raises(ClisupError) as caught:
        call()
    assert caught.value.kind == kind
    return caught.value


@pytest.mark.parametrize("mode", ["one-shot", "live"])
def test_each_turn_has_its_own_schema_and_the_session_goes_on(daemon: Harness, mode: str) -> None:
    session = daemon.new(mode=mode)
    assert session.ask("first", output_schema=SCHEMA)["structured"] == {"port": 80}
    assert session.ask("second", output_schema=OTHER)["structured"] == {"name": "demo"}
    plain = session.ask("@recall\n@count")
    assert plain["text"] == "The first prompt was: first\nturn 3"
    assert "structured" not in plain
    ends = session.events("turn_completed")
    assert [end.get("structured") for end in ends] == [{"port": 80}, {"name": "demo"}, None]


def test_a_live_process_is_kept_while_the_schema_stays_and_the_journal_says_why_it_is_not(daemon: Harness) -> None:
    session = daemon.new(mode="live")
    for schema in (SCHEMA, SCHEMA, None, None):
        session.ask("words", **({"output_schema": schema} if schema else {}))
    assert len(session.events("process_started")) == 2
    (told,) = [e["message"] for e in session.events("notice") if e["code"] == "process_restarted"]
    assert "the output schema" in told


def test_a_model_that_answers_in_words_alone_completes_without_a_value(daemon: Harness) -> None:
    done = daemon.new().ask("only words\n@unstructured", output_schema=SCHEMA)
    assert (done["outcome"], done["text"]) == ("completed", "only words")
    assert "structured" not in done


def test_the_schema_stays_with_a_queued_prompt_when_the_daemon_is_killed(daemon: Harness) -> None:
    session = daemon.new()
    go = daemon.root / "go"
    session.prompt(f"@wait-file {go}")
    turn = session.prompt("words", output_schema=SCHEMA)
    daemon.kill()
    daemon.start()
    go.touch()
    assert session.await_event("turn_completed", turn_id=turn)["structured"] == {"port": 80}


def test_a_known_key_gives_its_first_turn_whatever_the_schema(daemon: Harness) -> None:
    session = daemon.new()
    first = session.ask("words", key="k", output_schema=SCHEMA)
    again = session.ask("words", key="k", output_schema=OTHER)
    assert (again["turn_id"], again["structured"]) == (first["turn_id"], {"port": 80})


def test_what_is_no_schema_of_an_object_or_too_long_is_refused(daemon: Harness) -> None:
    session = daemon.new()
    refused("invalid_params", lambda: session.ask("words", output_schema={"type": "string"}))
    refused("invalid_params", lambda: session.ask("words", output_schema={}))
    long = {"type": "object", "description": "x" * 100_000}
    assert "98304" in refused("invalid_params", lambda: session.ask("words", output_schema=long)).message
    session.ask("words", output_schema={"type": "object", "description": "x" * 90_000})
    (started,) = session.events("process_started")
    assert max(map(len, started["argv"])) < 4200 and any("characters)" in word for word in started["argv"])


def test_a_steered_prompt_has_no_schema_of_its_own(daemon: Harness) -> None:
    session = daemon.new(mode="live")
    error = refused("invalid_params", lambda: session.ask("words", output_schema=SCHEMA, when_busy="steer"))
    assert error.data["param"] == "output_schema"


def test_a_backend_that_gives_no_such_answers_refuses_before_the_prompt_is_accepted(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve(raw='[backends.other]\nkind = "acp"\ncommand = ["true"]')
    session = daemon.new(backend="other")
    error = refused("unsupported", lambda: session.ask("words", output_schema=SCHEMA))
    assert error.data["param"] == "output_schema"
    assert not session.events()
    can = {row["name"]: row["capabilities"]["structured"] for row in daemon.call("backend/list")}
    assert can["demo"] and not can["other"]
