"""What the fake CLI says: frames that claude 2.1.329 said, as they were recorded, in the mix of real turns.

The bodies of recorded one-shot turns, one after the other, without their `init` and `result`. The loopback fakes of the API
that they were recorded against answer in few pieces, so each small delta comes `REPEATED` times, as a real answer does.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import NamedTuple

from tests.versions import VERSIONS

__all__ = ["Mix", "write_mix"]

RECORDED = Path(__file__).parents[1] / "recordings" / "claude" / VERSIONS["claude"]
TURNS = ("text", "thinking", "tool_ok", "parallel_tools", "subagent", "tool_fail", "mcp", "tool_heartbeat", "big_text_40k",
         "tool_denied", "slow_bash", "big_tool_input_40k", "max_tokens")  # fmt: skip
REPEATED = 12
SMALL = 1024
HALF = re.compile(rb"\\u[dD][89a-fA-F]")  # orjson, which we compare with, refuses halves of surrogate pairs
STAMP = "@STAMP-0000000000000000"


class Mix(NamedTuple):
    """A directory for the fake CLI (`init`, `body`, `result`), and what one pass through the body is."""

    path: Path
    lines: int
    bytes: int


def write_mix(directory: Path, *, stamped: bool = False) -> Mix:
    """The recorded mix. `stamped`: each small text delta carries the word that the fake CLI replaces by the time."""
    turns = [(RECORDED / f"{name}.jsonl").read_bytes().splitlines() for name in TURNS]
    body = [line for turn in turns for frame in turn for line in _repeated(frame, stamped)]
    return _write(directory, turns[0], body)


def write_deltas(directory: Path) -> Mix:
    """Stamped text deltas alone: each line can be timed."""
    mix = [line for line in (RECORDED / "text.jsonl").read_bytes().splitlines() if _kind(line) == "text_delta"]
    return _write(directory, (RECORDED / "text.jsonl").read_bytes().splitlines(), [_stamp(mix[0])])


def write_huge(directory: Path, size: int) -> Mix:
    """Tool results of `size` bytes, each on one line."""
    turn = (RECORDED / "tool_ok.jsonl").read_bytes().splitlines()
    frame = next(json.loads(line) for line in turn if json.loads(line)["type"] == "user")
    frame["message"]["content"][0]["content"] = "x" * size
    frame.pop("tool_use_result", None)
    return _write(directory, turn, [json.dumps(frame).encode()])


def _write(directory: Path, turn: list[bytes], body: list[bytes]) -> Mix:
    directory.mkdir(parents=True, exist_ok=True)
    init = json.loads(next(line for line in turn if b'"subtype":"init"' in line))
    init["session_id"] = "@SESSION@"
    (directory / "init").write_text(json.dumps(init, separators=(",", ":")) + "\n")
    (directory / "result").write_bytes(next(line for line in turn if b'"type":"result"' in line) + b"\n")
    data = b"".join(line + b"\n" for line in body)
    (directory / "body").write_bytes(data)
    return Mix(directory, len(body), len(data))


def _kind(line: bytes) -> str:
    frame = json.loads(line)
    if frame["type"] != "stream_event" or frame["event"]["type"] != "content_block_delta":
        return str(frame["type"] if frame["type"] != "system" else frame["subtype"])
    return str(frame["event"]["delta"]["type"])


def _repeated(line: bytes, stamped: bool) -> list[bytes]:
    kind = _kind(line)
    if kind in ("init", "result") or HALF.search(line):
        return []
    if not kind.endswith("_delta") or len(line) > SMALL:
        return [line]
    return [_stamp(line) if stamped and kind == "text_delta" else line] * REPEATED


def _stamp(line: bytes) -> bytes:
    frame = json.loads(line)
    frame["event"]["delta"]["text"] = STAMP
    return json.dumps(frame, separators=(",", ":"), ensure_ascii=False).encode()
