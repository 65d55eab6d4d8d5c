"""Every failure of an API as the daemon sees it: its kind, its hint, what was repeated, and that nothing hangs."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from clisup.model.events import BackendRetry, ContentDelta, EventBase, RateLimit, Retracted, Unparsed
from clisup.model.verdict import Terminal
from tests.worker.driver import KEY, KEY_ENV, Worker, worker
from tests.worker.fake_api import (
    APIS,
    Answer,
    Cut,
    FakeApi,
    Raw,
    Reply,
    Script,
    answer,
    call,
    partial,
    raw_answer,
    refuse,
    say,
    steps,
    stream_error,
)  # fmt: skip

each_api = pytest.mark.parametrize("api", APIS)
NOW = {"retry-after-ms": "1"}
E = TypeVar("E", bound=EventBase)
HTML = {"content-type": "text/html"}
FINE = answer(say("Fine."))


def failed(process: Worker, kind: str, *words: str) -> Terminal:
    """The one end of a turn that failed in this way, with these words in its message."""
    assert process.ended() == 1
    [terminal] = process.terminals
    assert terminal.is_error and terminal.error is not None, terminal
    assert terminal.error.kind == kind, terminal.error
    for word in words:
        assert word in terminal.error.message
    assert not process.events(Unparsed)
    assert b"Traceback" not in process.stderr
    return terminal


REFUSALS: dict[str, tuple[Script, str, tuple[str, ...]]] = {
    "a wrong key": (refuse(401, "invalid x-api-key", kind="authentication_error"), "authentication", (KEY_ENV,)),
    "a forbidden model": (refuse(403, "not yours", kind="permission_error"), "permission", ()),
    "an unknown model": (refuse(404, "model: fake-model", kind="not_found_error", code="model_not_found"), "model_not_found", ()),
    "a request that is too large": (refuse(413, "too large", kind="request_too_large"), "context_overflow", ()),
    "Groq's limit of a request's tokens": (refuse(413, "too large", code="rate_limit_exceeded"), "context_overflow", ()),
    "a context that is too long": (
        refuse(400, "prompt is too long: 210000 tokens > 200000", kind="invalid_request_error"), "context_overflow", ()),
    "a context that is too long for OpenAI": (
        refuse(400, "This model's maximum context length is 128000 tokens", code="context_length_exceeded"), "context_overflow", ()),
    "a spent balance": (refuse(402, "Payment required", kind="billing_error"), "quota_exceeded", ()),
    "a spent quota": (refuse(429, "You exceeded your current quota", code="insufficient_quota", kind="insufficient_quota"),
                      "quota_exceeded", ()),
    "a credit that is too low": (refuse(400, "Your credit balance is too low", kind="invalid_request_error"), "quota_exceeded", ()),
    "a request that is no good": (refuse(400, "temperature: too hot", kind="invalid_request_error"), "invalid_request", ("hot",)),
    "another HTTP status": (refuse(418, "teapot"), "invalid_request", ("teapot",)),
    "a page where the API should be": (
        steps(Answer(404, "<html>nothing here</html>", HTML)), "network", ("base_url", "404")),
    "a path that the server does not know": (steps(Answer(404, {"detail": "Not Found"})), "network", ("base_url",)),
    **{
        f"a redirect with status {status}": (
            steps(Answer(status, "", {"location": "http://user:pw@localhost:9/v1?token=QUERYSECRET"})),
            "network", ("base_url", "localhost", str(status), "redirect"))
        for status in (301, 302, 303, 307, 308)
    },
    "a redirect to the same host": (
        steps(Answer(307, "", {"location": "/elsewhere"})), "network", ("base_url", "127.0.0.1", "redirect")),
    "a redirect without an address": (steps(Answer(302, "")), "network", ("base_url", "redirect")),
    "a page in the place of an answer": (
        steps(Answer(200, "<html>welcome</html>", HTML)), "network", ("base_url", "text/html")),
    "an answer that is no stream": (steps(Answer(200, {"id": "x"})), "network", ("application/json",)),
    "an error without a bound": (steps(Answer(500, "[" * (17 << 20))), "server", ("base_url", "body of more than 16777216")),
    "a line without a bound": (raw_answer("data: " + "x" * (17 << 20)), "server", ("base_url", "line of more than 16777216")),
    "a packed error": (steps(Answer(500, "{}", {"content-encoding": "gzip"})), "server", ("'gzip'", "not asked for")),
    "a packed stream": (
        steps(Raw({"type": "raw"}, {"content-encoding": "br"}, "data: x\n\n")), "server", ("'br'", "not asked for")),
}  # fmt: skip


class Turn(NamedTuple):
    """One turn of a process that had many."""

    events: list[EventBase]
    terminal: Terminal
    requests: int

    def of(self, kind: type[E]) -> list[E]:
        return [event for event in self.events if isinstance(event, kind)]


def play(api: str, home: Path, scripts: dict[str, tuple[Script, ...]], *args: str) -> dict[str, Turn]:
    """A turn of a live process for each of these, by its name: so many processes would take their time."""
    requests: list[int] = []
    with FakeApi(api, FINE) as fake, worker(fake, home, *args, live=True) as process:
        for count, replies in enumerate(scripts.values(), 1):
            fake.play(*replies)
            process.say(f"Turn {count}.")
            process.result(count)
            requests.append(len(fake.bodies) - sum(requests))
        process.end()
    return {
        name: Turn(events, terminal, asked)
        for name, (events, terminal), asked in zip(scripts, process.turns, requests, strict=True)
    }


@pytest.fixture(scope="module", params=APIS)
def refusals(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Turn]:
    scripts = {name: (script,) for name, (script, _, _) in REFUSALS.items()}
    return play(request.param, tmp_path_factory.mktemp("home"), scripts)


@pytest.mark.parametrize("what", REFUSALS)
def test_what_cannot_be_repaired_by_a_repeat_fails_at_once_with_its_kind(what: str, refusals: dict[str, Turn]) -> None:
    (_, kind, words), turn = REFUSALS[what], refusals[what]
    assert turn.terminal.error is not None and turn.terminal.error.kind == kind, turn.terminal
    assert all(word in turn.terminal.error.message for word in words)
    assert "QUERYSECRET" not in turn.terminal.error.message
    assert (turn.requests, turn.of(BackendRetry), turn.of(Unparsed)) == (1, [], [])


@pytest.mark.parametrize("api", ["chat", "responses"])
@pytest.mark.parametrize("code", ["content_policy_violation", "content_filter", "invalid_prompt"])
def test_content_that_the_api_refuses_is_a_refusal(api: str, code: str, tmp_path: Path) -> None:
    with FakeApi(api, refuse(400, "flagged", code=code)) as fake, worker(fake, tmp_path) as process:
        process.ask()
        failed(process, "refusal", "flagged")


@each_api
def test_an_answer_that_the_model_refuses_is_a_refusal(api: str, tmp_path: Path) -> None:
    stop = {"anthropic": "refusal", "chat": "content_filter", "responses": "content_filter"}[api]
    with FakeApi(api, answer(say("I will"), stop=stop)) as fake, worker(fake, tmp_path) as process:
        process.ask()
        assert failed(process, "refusal").usage.output_tokens == 40


TEMPORARY: dict[str, tuple[Script, str, int | None]] = {
    "a limit": (refuse(429, "slow down", kind="rate_limit_error", headers=NOW), "rate_limit", 429),
    "a broken server": (refuse(500, "oops", kind="api_error", headers=NOW), "server", 500),
    "a gateway's page": (steps(Answer(502, "<html>bad gateway</html>", {**HTML, **NOW})), "server", 502),
    "a busy server": (refuse(503, "busy", kind="server_error", headers=NOW), "server", 503),
    "an overloaded one": (refuse(529, "Overloaded", kind="overloaded_error", headers=NOW), "overloaded", 529),
    "an overload in the stream": (stream_error("overloaded_error", "Overloaded"), "overloaded", None),
    "a stream that is cut at once": (steps(Cut()), "network", None),
    "a stream that ends at once": (raw_answer("\n"), "network", None),
    "a chunk that is no JSON": (raw_answer("event: message_start\ndata: {oops\n\n"), "server", None),
    "a chunk that is no object": (raw_answer("event: message_start\ndata: 7\n\n"), "server", None),
}  # fmt: skip


@pytest.fixture(scope="module", params=APIS)
def repaired(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Turn]:
    scripts = {name: (script, FINE) for name, (script, _, _) in TEMPORARY.items()}
    return play(request.param, tmp_path_factory.mktemp("home"), scripts)


@pytest.fixture(scope="module", params=APIS)
def lasting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Turn]:
    scripts = {name: (script,) for name, (script, _, _) in TEMPORARY.items()}
    return play(request.param, tmp_path_factory.mktemp("home"), scripts, "--max-retries", "1")


@pytest.mark.parametrize("what", TEMPORARY)
def test_what_a_repeat_may_repair_is_repeated_and_told(what: str, repaired: dict[str, Turn]) -> None:
    (_, kind, status), turn = TEMPORARY[what], repaired[what]
    assert (turn.terminal.text, turn.requests) == ("Fine.", 2)
    [retry] = turn.of(BackendRetry)
    assert (retry.attempt, retry.error.http_status) == (1, status)
    assert status is None or retry.error.kind == kind
    assert not turn.of(Retracted) and not turn.of(Unparsed)


@pytest.mark.parametrize("what", TEMPORARY)
def test_what_goes_on_for_ever_ends_after_the_repeats_that_are_allowed(what: str, lasting: dict[str, Turn]) -> None:
    turn = lasting[what]
    assert turn.terminal.error is not None and turn.terminal.error.kind == TEMPORARY[what][1], turn.terminal
    assert turn.terminal.error.retryable
    assert (turn.requests, len(turn.of(BackendRetry))) == (2, 1)


@each_api
@pytest.mark.parametrize("ending", ["cut", "end", "garbage"])
def test_an_answer_that_breaks_off_after_its_first_word_is_not_repeated(api: str, ending: str, tmp_path: Path) -> None:
    tail = {
        "cut": (Cut(),),
        "end": (),
        "garbage": (Raw({"type": "raw"}, {}, "event: content_block_delta\ndata: {oops\n\n"),),
    }
    with FakeApi(api, partial(say("Half an"), *tail[ending]), FINE) as fake, worker(fake, tmp_path) as process:
        process.ask()
        failed(process, "server" if ending == "garbage" else "network")
    assert len(fake.bodies) == 1 and not process.events(BackendRetry)
    assert [delta.text for delta in process.events(ContentDelta)] == ["Half an"]
    assert len(process.events(Retracted)) == 1


def test_an_error_in_the_middle_of_an_answer_ends_it_with_the_kind_of_the_error(tmp_path: Path) -> None:
    error = Raw({"type": "raw"}, {}, 'data: {"error": {"message": "slow down", "code": 429}}\n\n')
    with FakeApi("chat", partial(say("Half"), error), FINE) as fake, worker(fake, tmp_path) as process:
        process.ask()
        failed(process, "rate_limit", "slow down")
    assert len(fake.bodies) == 1


def test_a_request_that_is_repeated_is_counted_as_far_as_the_api_told_its_tokens(tmp_path: Path) -> None:
    def begun(api: str, n: int) -> Reply:
        return [*answer(say("x"))(api, n)[:1], Cut()]

    with FakeApi("anthropic", begun, FINE) as fake, worker(fake, tmp_path) as process:
        assert process.ask().usage.input_tokens == 1000 + 1001
    assert len(process.events(BackendRetry)) == 1


def test_an_event_of_an_unknown_shape_is_an_error_of_the_server(tmp_path: Path) -> None:
    odd = 'event: content_block_delta\ndata: {"type": "content_block_delta", "index": 7, "delta": {}}\n\n'
    with (
        FakeApi("anthropic", partial(say("Half"), Raw({"type": "raw"}, {}, odd))) as fake,
        worker(fake, tmp_path) as process,
    ):
        process.ask()
        failed(process, "server", "unknown shape")


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "3600"},
        {"retry-after": formatdate(4102444800, usegmt=True)},
        {"retry-after-ms": "3600000"},
        {"x-ratelimit-reset-requests": "1h0m0s", "x-ratelimit-remaining-requests": "0"},
        {"anthropic-ratelimit-tokens-reset": "2100-01-01T00:00:00Z", "anthropic-ratelimit-tokens-remaining": "0"},
    ],
    ids=["seconds", "date", "milliseconds", "reset in a span", "reset at a time"],
)
def test_a_limit_that_lasts_is_not_waited_for_but_its_end_is_told(headers: dict[str, str], tmp_path: Path) -> None:
    script = refuse(429, "slow down", kind="rate_limit_error", headers=headers)
    with FakeApi("chat", script) as fake, worker(fake, tmp_path) as process:
        process.ask()
        terminal = failed(process, "rate_limit")
    [limit] = process.events(RateLimit)
    assert limit.status == "rejected" and limit.resets_at
    assert terminal.error is not None and terminal.error.resets_at == limit.resets_at
    assert len(fake.bodies) == 1


def test_a_short_limit_is_waited_for(tmp_path: Path) -> None:
    script = refuse(429, "slow down", kind="rate_limit_error", headers={"retry-after": "1"})
    with FakeApi("chat", script, FINE) as fake, worker(fake, tmp_path) as process:
        assert process.ask().text == "Fine."
    assert process.events(BackendRetry)[0].delay_s == 1
    assert process.events(RateLimit)[0].status == "rejected"


@each_api
def test_a_refused_connection_and_an_unknown_host_are_failures_of_the_network(api: str, tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for url in (f"http://127.0.0.1:{closed.getsockname()[1]}", "http://nowhere.invalid"):
            with worker(api, tmp_path, "--max-retries", "1", url=url) as process:
                process.ask()
                failed(process, "network", "Unable to connect", url)
            assert len(process.events(BackendRetry)) == 1


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(path),
         "-out", f"{path}.crt", "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"],
        check=True, capture_output=True,
    )  # fmt: skip
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    yield path


@each_api
def test_an_untrusted_certificate_is_told_with_what_to_do(api: str, certificate: Path, tmp_path: Path) -> None:
    with FakeApi(api, FINE) as fake:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        fake._server.socket = context.wrap_socket(fake._server.socket, server_side=True)
        url = fake.url.replace("http:", "https:")
        with worker(fake, tmp_path, url=url) as process:
            process.ask()
            failed(process, "network", "SSL_CERT_FILE")
        assert not process.events(BackendRetry)
        with worker(fake, tmp_path, url=url, env={"SSL_CERT_FILE": f"{certificate}.crt"}) as process:
            assert process.ask().text == "Fine."


# The key


@each_api
@pytest.mark.parametrize("where", ["status", "stream"])
def test_a_key_that_the_api_repeats_is_nowhere_in_the_output(api: str, where: str, tmp_path: Path) -> None:
    words = f"your key {KEY} is not good"
    script = refuse(401, words) if where == "status" else stream_error("authentication_error", words)
    with FakeApi(api, script) as fake, worker(fake, tmp_path, "--max-retries", "0") as process:
        process.ask()
        failed(process, "authentication", "[redacted]")
    everywhere = b"".join(process.lines) + process.stderr + json.dumps([process.argv, process.transcript()]).encode()
    assert KEY.encode() not in everywhere


@each_api
def test_a_missing_key_is_told_with_the_name_of_its_variable(api: str, tmp_path: Path) -> None:
    with worker(api, tmp_path, url="http://127.0.0.1:9", env={KEY_ENV: ""}) as process:
        process.end()
        failed(process, "authentication", KEY_ENV, "pass_env")
    assert KEY_ENV.encode() in process.stderr


@each_api
def test_a_server_without_a_key_is_asked_without_one(api: str, tmp_path: Path) -> None:
    with FakeApi(api, FINE) as fake, worker(fake, tmp_path, "--key-env", "", env={KEY_ENV: ""}) as process:
        assert process.ask().text == "Fine."


# The start


@pytest.mark.parametrize(("api", "package"), [("anthropic", "anthropic"), ("chat", "openai"), ("responses", "openai")])
def test_a_missing_library_is_told_with_the_command_that_installs_it(api: str, package: str, tmp_path: Path) -> None:
    blocked = f"import sys; sys.modules[{package!r}] = None; from clisup.worker.app import main; main(sys.argv[1:])"
    argv = [sys.executable, "-I", "-c", blocked, "--api", api, "--model", "m"]
    done = subprocess.run(
        argv, capture_output=True, stdin=subprocess.DEVNULL, env={"HOME": str(tmp_path)}, cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.decode().count("\n") == 1
    assert package in done.stderr.decode() and "pip install 'clisup[api]'" in done.stderr.decode()


def test_without_genai_prices_there_is_no_cost_and_all_else_works(tmp_path: Path) -> None:
    blocked = "import sys; sys.modules['genai_prices'] = None; from clisup.worker.app import main; main(sys.argv[1:])"
    with FakeApi("chat", answer(say("Hi."), model="gpt-4o")) as fake:
        argv = [sys.executable, "-I", "-c", blocked, "--api", "chat", "--model", "gpt-4o", "--base-url", fake.url]
        prompt = json.dumps({"type": "user", "message": {"role": "user", "content": "Hi."}}).encode()
        done = subprocess.run(argv, capture_output=True, input=prompt, env={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert done.returncode == 0
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert result["result"] == "Hi." and "cost_source" not in result


def test_a_missing_model_or_system_prompt_ends_the_worker(tmp_path: Path) -> None:
    for args, words in (
        (("--model", ""), b"no model"),
        (("--system-prompt-file", str(tmp_path / "missing")), b"cannot read the system prompt"),
    ):
        with worker("chat", tmp_path, *args, url="http://127.0.0.1:9") as process:
            assert process.end() == 1
        assert words in process.stderr and not process.lines


def test_a_list_of_models_that_fails_says_why(tmp_path: Path) -> None:
    for url, words in (("http://127.0.0.1:9", b"Unable to connect"), (None, b"base_url")):
        with FakeApi("chat") as fake, worker(fake, tmp_path, "--models", url=url or f"{fake.url}/wrong") as process:
            assert process.ended() == 1
        assert words in process.stderr and b"Traceback" not in process.stderr


@each_api
def test_a_failure_while_tools_are_asked_for_ends_the_turn_with_what_was_used(api: str, tmp_path: Path) -> None:
    replies = (answer(call("nothing")), refuse(500, "oops"))
    with FakeApi(api, *replies) as fake, worker(fake, tmp_path, "--max-retries", "0") as process:
        process.ask()
        assert failed(process, "server").usage.output_tokens == 40
