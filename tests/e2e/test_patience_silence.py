"""A long silent tool of the real claude, beside a stream that stalls: the one lives, the other does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.lab import ClaudeLab

pytestmark = pytest.mark.e2e
BYPASS = {"permission_mode": "bypassPermissions"}
TIMEOUTS = "[backends.claude.timeouts]\nmodel_idle = 5\ntool_idle = 120"


@pytest.mark.fault(15)
def test_a_tool_that_is_silent_for_40_s_lives_while_a_stalled_stream_does_not(lab: Callable[..., ClaudeLab]) -> None:
    quiet, stalled = lab("silent_bash_40", config=TIMEOUTS), lab("stall_mid_stream", config=TIMEOUTS)
    session = quiet.open(**BYPASS)
    quiet.prompt(session, "Use your tools.")
    use = quiet.wait_for(session, "tool_use")
    turn = stalled.turn()
    assert turn["outcome"] == "timed_out" and turn["error"]["kind"] == "idle_timeout"
    assert not quiet.events(session, "turn_completed")  # the stall has ended while the tool still says nothing
    done = quiet.wait_for(session, "turn_completed")
    (result,) = quiet.events(session, "tool_result")
    assert done["outcome"] == "completed" and done["text"] == "done"
    assert (result["tool_use_id"], result["content"]) == (use["tool_use_id"], "finished")
    assert done["duration_s"] > 40
    assert quiet.events(session, "process_exited")[0]["ended_by"] == "cli"
    assert not quiet.events(session, "watchdog")


@pytest.mark.fault(15)
def test_a_tool_that_hangs_is_ended_although_the_cli_itself_stays_busy(lab: Callable[..., ClaudeLab]) -> None:
    """claude's event loop reads and writes a little for ever: that is no work of its tool."""
    here = lab("hung_bash", config="[backends.claude.timeouts]\ntool_idle = 6")
    turn = here.turn("Use your tools.", **BYPASS)
    fired = here.events(turn["session_id"], "watchdog")[-1]
    assert turn["outcome"] == "timed_out" and turn["error"]["kind"] == "idle_timeout"
    assert (fired["action"], fired["phase"], fired["evidence"]["grew"]) == ("fired", "tool", False)
