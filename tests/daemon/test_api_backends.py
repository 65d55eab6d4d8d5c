"""API backends behind a whole daemon: a worker is one more CLI, so what holds for a CLI holds for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from clisup.errors import ClisupError
from tests.e2e.api.lab import API_KINDS, KEY_ENV, MODELS, ApiLab, call, cut, fail, say, stalled
from tests.e2e.lab import marked, poll, running, text_of
from tests.e2e.scenarios import Answer, Body, Reply, Respond, in_turn

Start = Callable[..., ApiLab]
ADD = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(params=API_KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lab() -> Iterator[Start]:
    """Starts a lab: `lab(kind, respond)`."""
    with ExitStack() as stack:

        def start(kind: str, respond: Respond, **options: Any) -> ApiLab:
            return stack.enter_context(running(ApiLab(kind, respond, **options)))

        yield start


def refused(kind: str, call: Callable[[], Any]) -> ClisupError:
    with pytest.raises(ClisupError) as caught:
        call()
    assert caught.value.kind == kind
    return caught.value


def said(body: Body) -> str:
    """All that a request tells the model, as JSON."""
    return json.dumps(body.get("messages") or body.get("input"))


def worker_of(lab: ApiLab, session: str) -> int:
    return int(lab.wait_for(session, "process_started")["pid"])


# -- turns


def test_two_turns_share_a_process_and_the_second_knows_the_first(lab: Start, kind: str) -> None:
    here = lab(kind, in_turn(say(kind, "One."), say(kind, "Two.")))
    session = here.open()
    first = here.turn("The word is plum.", session=session)
    assert (first["outcome"], first["text"], first["usage"]["source"]) == ("completed", "One.", "reported")
    assert here.turn("Which word?", session=session)["text"] == "Two."
    assert "plum" in said(here.api.main_requests[1].body) and "One." in said(here.api.main_requests[1].body)
    assert len(here.events(session, "process_started")) == 1
    (started,) = here.events(session, "process_started")
    assert started["env_attested"] is True and KEY_ENV in started["env_names"]


def test_in_one_shot_mode_each_turn_has_a_process_and_the_conversation_goes_on(lab: Start, kind: str) -> None:
    here = lab(kind, in_turn(say(kind, "One."), say(kind, "Two.")))
    session = here.open(mode="one-shot")
    here.turn("The word is plum.", session=session)
    here.turn("Which word?", session=session)
    assert "plum" in said(here.api.main_requests[1].body) and len(here.events(session, "process_started")) == 2


def test_the_systems_prompt_is_the_callers_alone(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "Aye."))
    here.turn("Hello.", system_prompt="You are a pirate.")
    body = here.api.main_requests[0].body
    assert "You are a pirate." in json.dumps(body) and "tools" not in body


def test_a_configured_model_is_used_where_the_session_names_none(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "Hi."))
    here.turn("Hello.")
    here.turn("Hello.", model="other-1")
    assert [request.body["model"] for request in here.api.main_requests] == [MODELS[kind], "other-1"]


# -- what is killed


def test_a_daemon_that_is_killed_in_the_stream_loses_and_repeats_nothing(lab: Start, kind: str) -> None:
    here = lab(kind, stalled(kind, "Half an answer"))
    session = here.open()
    here.prompt(session)
    here.wait_for(session, "content_delta")
    here.kill()
    here.start()
    assert [e["text"] for e in here.events(session, "content_delta")] == ["Half an answer"]
    assert len(here.api.main_requests) == 1
    here.api.release.set()  # the fake drops the connection: the answer was cut after its first word, and is not repeated
    end = here.wait_for(session, "turn_completed")
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "network")
    assert len(here.events(session, "process_started")) == 1
    seqs = [event["seq"] for event in here.events(session)]
    assert seqs == sorted(set(seqs))


def test_an_answer_goes_on_while_no_daemon_is_there(lab: Start, kind: str) -> None:
    gate: dict[str, Any] = {}

    def respond(body: Body, n: int) -> Reply:
        gate["api"].release.wait(60)
        return say(kind, "The whole answer.")(body, n)

    here = lab(kind, respond)
    gate["api"] = here.api
    session = here.open()
    here.prompt(session)
    poll(lambda: here.api.main_requests, "the request")
    here.kill()
    here.api.release.set()
    here.start()
    end = here.wait_for(session, "turn_completed")
    assert (end["outcome"], text_of(here.events(session))) == ("completed", "The whole answer.")
    assert len(here.api.main_requests) == 1


def test_a_worker_that_is_killed_in_the_stream_fails_its_turn_and_the_next_one_goes_on(lab: Start, kind: str) -> None:
    here = lab(kind, in_turn(stalled(kind, "Half"), say(kind, "Whole.")))
    session = here.open()
    here.prompt(session, "The word is plum.")
    here.wait_for(session, "content_delta")
    os.kill(worker_of(here, session), signal.SIGKILL)
    end = here.wait_for(session, "turn_completed")
    assert (end["outcome"], end["error"]["kind"]) == ("failed", "crashed")
    assert here.turn("And?", session=session)["text"] == "Whole."
    assert "plum" in said(here.api.main_requests[1].body)


def test_an_interrupt_ends_the_turn_and_keeps_the_process(lab: Start, kind: str) -> None:
    here = lab(kind, in_turn(stalled(kind, "Half"), say(kind, "Whole.")))
    session = here.open()
    here.prompt(session)
    here.wait_for(session, "content_delta")
    with here.client() as client:
        client.call("session/interrupt", session_id=session)
    assert here.wait_for(session, "turn_completed")["outcome"] == "interrupted"
    assert here.turn("And?", session=session)["text"] == "Whole."
    assert len(here.events(session, "process_started")) == 1


def test_a_silent_api_is_ended_by_the_watchdog_and_nothing_is_left(lab: Start, kind: str) -> None:
    here = lab(kind, stalled(kind, "Half"))
    session = here.open(timeouts={"model_idle": 1.0, "int_grace": 0.5, "term_grace": 0.5})
    here.prompt(session)
    end = here.wait_for(session, "turn_completed")
    assert (end["outcome"], end["error"]["kind"]) == ("timed_out", "idle_timeout")
    with here.client() as client:
        client.call("session/close", session_id=session)
    poll(lambda: not marked(session), "the end of the session's processes")


# -- the caller owns the loop


def test_a_call_of_the_callers_tool_ends_the_turn_and_its_result_begins_the_next(lab: Start, kind: str) -> None:
    here = lab(kind, in_turn(call(kind, ("add", {"a": 2}), ("add", {"a": 3})), say(kind, "Five.")))
    session = here.open()
    first = here.turn("What is it?", session=session, ask={"tools": [ADD]})
    assert (first["outcome"], first["stop_reason"]) == ("completed", "tool_use")
    used = here.events(session, "tool_use")
    assert [(use["name"], use["input"]) for use in used] == [("add", {"a": 2}), ("add", {"a": 3})]
    assert not here.events(session, "tool_result")
    results: list[dict[str, Any]] = [
        {"type": "tool_result", "tool_use_id": use["tool_use_id"], "content": f"result {use['input']['a']}"}
        for use in used
    ]
    assert here.turn(results, session=session, ask={"tools": [ADD]})["text"] == "Five."
    assert all(f"result {a}" in said(here.api.main_requests[1].body) for a in (2, 3))
    assert not here.events(session, "unparsed")


def test_a_history_may_end_with_calls_that_the_first_prompt_answers(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "Five."))
    history = [
        {"role": "user", "content": "What is it?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "call_1", "name": "add", "input": {"a": 2}}]},
    ]
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": [{"type": "text", "text": "it is 5"}]}
    assert here.turn([result], history=history, ask={"tools": [ADD]})["text"] == "Five."
    assert "it is 5" in said(here.api.main_requests[0].body) and "call_1" in said(here.api.main_requests[0].body)


def test_sampling_reaches_the_api_and_what_it_has_not_is_refused(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "Hi."))
    here.turn("Hello.", ask={"sampling": {"max_tokens": 7, "temperature": 0.5, "top_p": 0.25}})
    body = here.api.main_requests[0].body
    limit = {"anthropic-api": "max_tokens", "chat-api": "max_tokens", "responses-api": "max_output_tokens"}[kind]
    assert (body[limit], body["temperature"], body["top_p"]) == (7, 0.5, 0.25)
    if kind == "chat-api":
        here.turn("Hello.", ask={"sampling": {"stop": ["END"], "seed": 3}})
        assert (here.api.main_requests[1].body["stop"], here.api.main_requests[1].body["seed"]) == (["END"], 3)
    elif kind == "anthropic-api":
        refusal = refused("unsupported", lambda: here.turn("Hello.", ask={"sampling": {"seed": 3}}))
        assert refusal.data["param"] == "sampling"
    else:
        assert here.turn("Hello.", ask={"sampling": {"seed": 3}})["error"]["kind"] == "invalid_request"


def test_a_cli_has_no_tools_of_the_caller_and_no_sampling(lab: Start) -> None:
    here = lab("chat-api", say("chat-api", "Hi."))
    session = here.open(backend="demo")
    asks: dict[str, dict[str, Any]] = {"tools": {"tools": [ADD]}, "sampling": {"sampling": {"seed": 1}}}
    for param, ask in asks.items():
        error = refused("unsupported", lambda ask=ask: here.turn("x", session=session, ask=ask))  # type: ignore[misc]
        assert error.data["param"] == param
    result: list[dict[str, Any]] = [{"type": "tool_result", "tool_use_id": "t", "content": "x"}]
    assert refused("unsupported", lambda: here.turn(result, session=session)).data["param"] == "prompt"


# -- images, schemas, caches, forks


def test_an_image_of_the_prompt_reaches_the_model(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "A dot."))
    prompt: list[dict[str, Any]] = [
        {"type": "image", "media_type": "image/png", "data": PNG},
        {"type": "text", "text": "What?"},
    ]
    assert here.turn(prompt)["text"] == "A dot."
    assert PNG in said(here.api.main_requests[0].body)


def test_an_answer_by_a_schema_is_a_value_and_the_process_is_kept(lab: Start, kind: str) -> None:
    here = lab(kind, in_turn(say(kind, '{"port": 80}'), say(kind, "Plain.")))
    schema = {"type": "object", "properties": {"port": {"type": "integer"}}, "required": ["port"]}
    session = here.open()
    assert here.turn("Which?", session=session, output_schema=schema)["structured"] == {"port": 80}
    assert here.turn("And?", session=session)["text"] == "Plain."
    assert len(here.events(session, "process_started")) == 1


def test_cache_marks_of_prompt_and_history_reach_anthropics_api_alone(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "Hi."))
    marked: list[dict[str, Any]] = [{"type": "text", "text": "long", "cache": True}, {"type": "text", "text": "short"}]
    history = [
        {"role": "user", "content": [{"type": "text", "text": "old", "cache": True}]},
        {"role": "assistant", "content": "ok"},
    ]
    here.turn(marked, history=history)
    words = said(here.api.main_requests[0].body)
    assert words.count("cache_control") == (2 if kind == "anthropic-api" else 0)
    assert "long" in words and "short" in words


def test_a_fork_has_the_turns_before_it_and_a_resumed_session_all(lab: Start, kind: str) -> None:
    here = lab(kind, in_turn(say(kind, "One."), say(kind, "Two."), say(kind, "Forked."), say(kind, "Resumed.")))
    session = here.open()
    first = here.turn("The word is plum.", session=session)
    here.turn("The word is fig.", session=session)
    with here.client() as client:
        fork = str(client.call("session/fork", session_id=session, at_turn=first["turn_id"])["session_id"])
    assert here.turn("Which?", session=fork)["text"] == "Forked."
    forked = said(here.api.main_requests[2].body)
    assert "plum" in forked and "fig" not in forked
    with here.client() as client:
        client.call("session/close", session_id=session)
    here.turn("Which?", session=here.open(resume_native_id=session))
    assert "plum" in said(here.api.main_requests[3].body) and "fig" in said(here.api.main_requests[3].body)


# -- failures


@pytest.mark.parametrize(
    ("status", "word", "expected"),
    [
        (401, "authentication_error", "authentication"),
        (403, "permission_error", "permission"),
        (402, "billing_error", "quota_exceeded"),
        (413, "request_too_large", "context_overflow"),
    ],
)
def test_an_error_of_the_api_has_the_kind_that_a_cli_gives(
    lab: Start, kind: str, status: int, word: str, expected: str
) -> None:
    here = lab(kind, fail(kind, status, word, "so it is"))
    done = here.turn()
    assert (done["outcome"], done["error"]["kind"], done["error"]["http_status"]) == ("failed", expected, status)
    assert "so it is" in done["error"]["message"] and len(here.api.main_requests) == 1


def test_a_limit_is_told_and_holds_the_accounts_next_turn(lab: Start, kind: str) -> None:
    here = lab(kind, fail(kind, 429, "rate_limit_error", "slow down", {"retry-after": "3600"}))
    session = here.open()
    done = here.turn(session=session)
    assert done["error"]["kind"] == "rate_limit" and done["error"]["retry_after_s"] > 3000
    assert here.events(session, "rate_limit")[0]["status"] == "rejected"
    with here.client() as client:
        error = refused(
            "rate_limited",
            lambda: client.call("session/prompt", session_id=session, prompt="again", when_limited="refuse"),
        )
    assert error.data["retry_after_s"] > 3000 and len(here.api.main_requests) == 1


def test_a_request_without_an_answer_is_repeated_and_each_repeat_is_told(lab: Start, kind: str) -> None:
    busy = fail(kind, 529, "overloaded_error", "too busy", {"retry-after-ms": "10"})
    here = lab(kind, in_turn(busy, busy, say(kind, "At last.")))
    session = here.open()
    assert here.turn(session=session)["text"] == "At last."
    assert [event["attempt"] for event in here.events(session, "retry")] == [1, 2]


def test_the_limit_of_retries_ends_a_turn(lab: Start, kind: str) -> None:
    busy = fail(kind, 529, "overloaded_error", "too busy", {"retry-after-ms": "10"})
    here = lab(kind, busy, config="[backends." + kind + ".limits]\nretries = 2")
    done = here.turn()
    assert (done["outcome"], done["error"]["kind"]) == ("failed", "overloaded")


def test_an_answer_that_was_cut_is_not_asked_for_again(lab: Start, kind: str) -> None:
    here = lab(kind, in_turn(cut(kind, "Half"), say(kind, "Twice.")))
    done = here.turn()
    assert (done["outcome"], done["error"]["kind"]) == ("failed", "network")
    assert len(here.api.main_requests) == 1


def test_a_missing_key_is_named_and_the_doctor_knows_it(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "Hi."), key=None)
    done = here.turn()
    assert (done["error"]["kind"], KEY_ENV in done["error"]["message"]) == ("authentication", True)
    with here.client() as client:
        found = {row["check"]: row for row in client.call("backend/check", name=kind) if row["backend"] == kind}
    assert found["login"]["status"] == "fail" and KEY_ENV in found["login"]["fix"]


def test_a_session_without_any_model_says_so(lab: Start) -> None:
    here = lab("chat-api", say("chat-api", "Hi."), config='[backends.bare]\nkind = "ollama"')
    done = here.turn(backend="bare")
    assert done["outcome"] == "failed" and "without a model" in done["error"]["message"]


def test_a_missing_package_is_told_with_the_command_that_installs_it(tmp_path: Path) -> None:
    """The interpreter has everything but the extra: a meta path finder stands for a package that is not there."""
    program = """
import sys
from clisup.config.model import parse_config
from clisup.daemon.backends import Backends
from clisup.errors import ClisupError
sys.modules["anthropic"] = None
backend = Backends(parse_config({}), {"PATH": "/bin", "HOME": "/"}).get("anthropic-api")
try:
    backend.executable()
except ClisupError as error:
    print(error.kind, error, error.hint)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.startswith("backend_unavailable") and "anthropic" in done.stdout
    assert "pip install 'clisup[api]'" in done.stdout


def test_a_budget_of_tokens_holds_a_session_of_an_api(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "Hi."))
    session = here.open(budget={"tokens": 10})
    assert here.turn(session=session)["outcome"] == "completed"
    refused("budget_exhausted", lambda: here.turn(session=session))
    assert len(here.api.main_requests) == 1


# -- secrets, models, configuration


def test_the_key_is_nowhere_but_in_the_workers_environment_and_its_requests(lab: Start, kind: str) -> None:
    key = "sk-canary-5f1d-in-no-file"
    here = lab(kind, in_turn(say(kind, "Hi."), fail(kind, 401, "authentication_error", f"bad key {key}")), key=key)
    session = here.open(mcp_config={"mcpServers": {"env": {"command": "sh", "args": ["-c", f"env > {here.cwd}/env"]}}})
    here.turn(session=session)
    worker = worker_of(here, session)
    assert key not in Path(f"/proc/{worker}/cmdline").read_text()
    here.turn(session=session)
    assert key in json.dumps(here.api.main_requests[0].headers)
    poll(lambda: not list(here.state.rglob("prompts/*.json")), "the end of the prompts' files")
    files = [path for path in here.root.rglob("*") if path.is_file()]
    assert (here.cwd / "env") in files
    kept = {path: path.read_bytes() for path in files if path.exists()}  # a turn's prompt goes with its end
    assert not [path for path, data in kept.items() if key.encode() in data]
    bundle = here.command("debug", "bundle", "--session", session, "-o", str(here.root / "bundle.tar.gz"))
    assert bundle.returncode == 0, bundle.stderr
    with subprocess.Popen(["gzip", "-dc", str(here.root / "bundle.tar.gz")], stdout=subprocess.PIPE) as opened:
        assert opened.stdout is not None and key.encode() not in opened.stdout.read()


def test_the_models_of_a_provider_are_listed(lab: Start, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = lab(kind, say(kind, "Hi."))
    rows = [{"id": name, "type": "model", "object": "model", "created_at": "2026-01-01T00:00:00Z", "created": 1, "owned_by": "x",
             "display_name": name} for name in ("b-2", "a-1")]  # fmt: skip
    page = {"object": "list", "data": rows, "has_more": False, "first_id": "b-2", "last_id": "a-1"}
    answer = here.api.reply_to
    monkeypatch.setattr(here.api, "reply_to", lambda r: [Answer(200, page)] if "models" in r.path else answer(r))
    assert here.command("backends", "--models", kind, "--json").stdout == '["a-1", "b-2"]\n'
    assert here.command("backends", "--models", kind).stdout == "a-1\nb-2\n"
    assert here.command("backends", "--models", "demo").returncode == 2
    with here.client() as client:
        assert refused("unsupported", lambda: client.models("demo")).data.get("param") is None


def test_a_provider_that_lists_no_models_is_told_with_its_reason(lab: Start, kind: str) -> None:
    here = lab(kind, say(kind, "Hi."))
    with here.client() as client:
        error = refused("backend_unavailable", lambda: client.models(kind))
    assert "cannot list the models" in str(error)


@pytest.mark.parametrize("line", ['base_url = "http://x"', 'key_env = "X"', "max_tokens = 5", 'effort = "low"'])
def test_a_clis_table_with_a_key_of_the_api_kinds_is_refused_at_the_start(line: str, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f"[backends.claude]\n{line}\n")
    done = subprocess.run(
        [sys.executable, "-m", "clisup", "serve", "--check", "--config", str(config), "--state-dir", str(tmp_path / "s"),
         "--socket", str(tmp_path / "sock")],
        capture_output=True, text=True, check=False, env={"PATH": "/bin", "HOME": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 78 and line.split(" ")[0] in done.stderr and "asks no API" in done.stderr
