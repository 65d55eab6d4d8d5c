"""Backend `demo`: claude's adapter in front of the demo CLI, which needs no login and no network."""

from __future__ import annotations

import glob
import sys
from collections.abc import Mapping

from clisup.backends.claude.adapter import ClaudeAdapter
from clisup.backends.claude.native_sessions import ClaudeNativeSessions
from clisup.backends.claude.transcript import ClaudePresence, ClaudeSeed
from clisup.backends.transcripts import own_directory

__all__ = ["DemoAdapter"]

# Started as a file and under -I -S: a session's directory, PYTHON* variables and site-packages cannot put other code in
# its place, it starts faster than with -m, and it needs no installed clisup.
_MAIN = __file__.rpartition("/backends/")[0] + "/demo/__main__.py"


def _home(env: Mapping[str, str]) -> str | None:
    state = own_directory(env, ".local/state", "XDG_STATE_HOME")
    return env.get("DEMO_CLI_HOME") or (f"{state}/clisup-demo" if state else None)


class DemoAdapter(ClaudeAdapter):
    """Adapter of claude with another command, other versions and another place of the transcripts."""

    kind = "demo"
    lists = "demo"
    default_command = (sys.executable, "-I", "-S", _MAIN)
    default_versions = ">=1,<2"
    newest_checked = update_command = ""
    version_pattern = r"(\d+\.\d+\.\d+) \(clisup demo\)"
    login_args = ()
    presence = ClaudePresence(_home)
    seed = ClaudeSeed(_home)
    native_sessions = ClaudeNativeSessions(_home)

    def refused_as_root(self, env: Mapping[str, str]) -> tuple[str, ...]:
        return ()

    def transcript_pattern(self, native_session_id: str, env: Mapping[str, str]) -> str | None:
        home = _home(env)
        if home is None:
            return None
        return f"{glob.escape(home)}/projects/*/{glob.escape(native_session_id)}.jsonl"
