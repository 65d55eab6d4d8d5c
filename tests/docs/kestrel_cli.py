"""The CLI of docs/how-to/add-a-backend.md: a line of JSON for its session, its answer, and the end of the turn."""

from __future__ import annotations

import json
import os
import sys


def main(args: list[str]) -> int:
    if "--version" in args:
        print("kestrel 1.2")
        return 0
    known = next((flag.partition("=")[2] for flag in args if flag.startswith("--resume=")), "")
    if known not in ("", "k1"):
        print(f"unknown session {known}", file=sys.stderr)
        return 2
    prompt = sys.stdin.read()
    said = {"say hello": "hello", "env": ",".join(sorted(os.environ))}.get(prompt, "again" if known else prompt)
    lines = [{"type": "session", "id": "k1"}]
    if prompt == "fail":
        lines.append({"type": "failed", "message": "no more seeds"})
    else:
        lines += [{"type": "text", "text": said}, {"type": "done", "tokens": {"in": 3, "out": 5}}]  # type: ignore[dict-item]
    for line in lines:
        print(json.dumps(line), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
