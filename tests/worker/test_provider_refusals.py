"""Refusals of providers in the shapes that the field reports: their kind, their words, and the time to wait."""

from __future__ import annotations

from typing import Any

import pytest

from clisup.worker.apis.api import OptionalFields
from clisup.worker.apis.events import StreamError
from clisup.worker.apis.failures import Endpoint, RequestFailure, of_response, of_stream

NOW = 1_790_000_000.0
ENDPOINT = Endpoint("http://127.0.0.1:1/v1")


def refused(status: int, body: Any, **headers: str) -> RequestFailure:
    return of_response(status, body, headers, NOW, ENDPOINT)


def error(message: str, **fields: Any) -> dict[str, Any]:
    return {"error": {"message": message, **fields}}


@pytest.mark.parametrize(
    "body",
    [
        error("request (4267 tokens) exceeds the available context size (4096 tokens)", code=400, type="exceed_context_size_error"),
        error("Context size has been exceeded.", type="invalid_request_error"),
        {"error": "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context "
                  "length of only 4096 tokens, which is not enough."},
        [error("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", status="INVALID_ARGUMENT")],
        error("prompt is too long: 210000 tokens > 200000 maximum", type="invalid_request_error"),
        error("This model's maximum context length is 8192 tokens.", code="context_length_exceeded"),
    ],
)  # fmt: skip
def test_a_full_context_is_one_in_the_words_of_every_server(body: Any) -> None:
    assert refused(400, body).api_error == "message_over_context_limit"


def test_a_status_that_blames_the_request_is_believed_before_a_word() -> None:
    failure = refused(400, error("gemma3 does not support tools", type="api_error"))  # Ollama
    assert (failure.code, failure.again) == ("invalid_request", False)
    assert refused(500, error("broken", type="api_error")).again


def test_words_of_a_refusal_are_the_providers_in_every_shape() -> None:
    assert refused(400, [error("Unknown name 'x'.", status="INVALID_ARGUMENT")]).message == "Unknown name 'x'."
    detail = [{"type": "extra_forbidden", "loc": ["body", "stream_options"], "msg": "Extra inputs are not permitted"}]
    assert refused(422, {"detail": detail}).message == "body.stream_options: Extra inputs are not permitted"
    assert refused(422, {"object": "error", "message": {"detail": detail}}).message.startswith(
        "body.stream_options: "
    )  # Mistral
    assert refused(400, {"error": "words alone"}).message == "words alone"


def test_an_address_is_wrong_only_where_no_api_answers() -> None:
    assert "base_url" in refused(404, "<html>").message
    assert "base_url" in refused(404, {"detail": "Not Found"}).message
    told = refused(404, error("The deployment x was not found.", code="DeploymentNotFound"))
    assert told.message == "The deployment x was not found."
    assert refused(404, error("The model `x` does not exist", code="model_not_found")).code == "model_not_found"


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (error("Rate limit reached for m. Please try again in 4s.", code="rate_limit_exceeded"), 4),
        (error("Please retry in 1m30.5s.", code=429), 90.5),
        (error("slow down", details=[{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "4s"}]), 4),
        (error("free-models-per-min", metadata={"headers": {"X-RateLimit-Reset": str(int((NOW + 40) * 1000))}}), 40),
        (error("slow down", retry_after=7), 7),
        (error("Try again later."), None),
    ],
)
def test_the_time_to_wait_may_stand_in_the_body(body: Any, seconds: float | None) -> None:
    found = refused(429, body).retry_after_s
    assert found == (None if seconds is None else pytest.approx(seconds))
    assert refused(429, body, **{"retry-after": "9"}).retry_after_s == 9


def test_an_error_in_an_answer_with_the_status_200_has_its_own_status_and_time() -> None:
    told = {"message": "Rate limit exceeded", "code": 429, "metadata": {"headers": {"retry-after": "5"}}}
    failure = of_stream(StreamError.of(told), ENDPOINT, NOW)
    assert (failure.code, failure.status, failure.retry_after_s) == ("rate_limit", 429, 5)


def test_a_refused_field_is_left_out_or_renamed_once_and_that_is_remembered() -> None:
    optional = OptionalFields({"stream_options": None, "max_tokens": "max_completion_tokens"})
    fields = {"model": "m", "stream_options": {}, "max_tokens": 5}
    assert optional.apply(fields) == fields
    assert optional.refuse("body.stream_options: Extra inputs are not permitted")
    assert not optional.refuse("body.stream_options: Extra inputs are not permitted")
    assert not optional.refuse("the model is too small")
    assert not optional.refuse("max_tokens is too large: 99999. This model supports at most 8192 completion tokens.")
    assert optional.refuse("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
    assert optional.apply(fields) == {"model": "m", "max_completion_tokens": 5}
