"""A limit of the size of a file: no space that anybody frees lifts it, so a turn does not wait."""

from __future__ import annotations

import resource
from collections.abc import Callable

import pytest
from harness import Harness


@pytest.mark.cold
@pytest.mark.fault(90)
@pytest.mark.parametrize("limit", [100_000, 1_000_000])
def test_output_beyond_the_limit_ends_its_turn_and_no_other(serve: Callable[..., Harness], limit: int) -> None:
    daemon = serve(start=False)
    daemon.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert "file size limited" in daemon.log.read_text()
    long, short = daemon.new(), daemon.new()
    error = long.ask("@stream 20000 100\nend")["error"]
    assert error["kind"] == "storage_failed" and "RLIMIT_FSIZE" in error["message"]
    assert long.events("process_exited")[0]["ended_by"] == "file_size"
    assert short.ask("Hello.")["outcome"] == "completed" == long.ask("Hello.")["outcome"]
    assert daemon.call("daemon/status")["daemon"]["storage"]["state"] == "ok"


@pytest.mark.cold
def test_a_journal_begins_a_segment_before_the_limit(serve: Callable[..., Harness]) -> None:
    daemon = serve(start=False)
    daemon.start(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)))
    session = daemon.new()
    for _ in range(8):
        assert session.ask("@stream 100 100\nend")["outcome"] == "completed"
    assert len(list((session.dir / "journal").iterdir())) > 1
    assert len(session.chunks()) == 800
