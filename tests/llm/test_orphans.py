"""Sessions that a dead program left are ended by their labels, and no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio
from harness import Harness

from clisup.llm.models import Client, resolve
from clisup.llm.testing import ScriptedModel

BOUND_S = 90.0


def opened(daemon: Harness, **labels: str) -> str:
    return str(daemon.call("session/new", backend="demo", cwd=str(daemon.cwd), labels=labels)["session_id"])


def ids(daemon: Harness, **params: Any) -> set[str]:
    return {one["session_id"] for one in daemon.call("session/list", **params)["sessions"]}


async def test_sessions_with_all_of_the_labels_are_ended_and_their_turns_with_them(
    serve: Callable[..., Harness],
) -> None:
    daemon = serve()
    ours, running = opened(daemon, job="a", of="x"), opened(daemon, job="a", of="x")
    others = {opened(daemon, job="a"), opened(daemon, job="b", of="x"), opened(daemon)}
    daemon.call("session/prompt", session_id=running, prompt="@stall")
    with trio.fail_after(BOUND_S):
        assert await resolve("demo", socket=daemon.socket).end_sessions({"job": "a", "of": "x"}) == 2
        assert await resolve("demo", socket=daemon.socket).end_sessions({"job": "a", "of": "x"}) == 0
    assert ids(daemon) == others
    assert not {ours, running} & ids(daemon, state="closed")


async def test_records_that_are_to_be_kept_are_kept(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    ours = opened(daemon, job="a")
    with trio.fail_after(BOUND_S):
        assert await resolve("demo", socket=daemon.socket, keep=True).end_sessions({"job": "a"}) == 1
    assert ours in ids(daemon, state="closed")


async def test_a_client_ends_them_at_the_daemons_of_all_its_models(serve: Callable[..., Harness]) -> None:
    daemon = serve()
    opened(daemon, job="a")
    client = Client(ScriptedModel(), [resolve("demo", socket=daemon.socket)])
    with trio.fail_after(BOUND_S):
        assert await client.end_sessions({"job": "a"}) == 1
