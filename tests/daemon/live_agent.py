"""A live CLI in claude's words that does what a test needs: it leaves after its first answer, whatever it was told meanwhile.

A prompt "... and another" is answered once it has been told more; "... and another on its own" makes of that a turn of its own, a
while after the first one, which does not end.
"""

from __future__ import annotations

import json
import sys
import time

if "--version" in sys.argv:
    print("1.0.0 (clisup demo)")
    raise SystemExit
SESSION = next(
    arg.partition("=")[2] or sys.argv[at + 1]
    for at, arg in enumerate(sys.argv)
    if "--session-id" in arg or "--resume" in arg
)


def say(**frame: object) -> None:
    print(json.dumps({**frame, "session_id": SESSION}), flush=True)


def told() -> dict[str, object]:
    for line in sys.stdin:
        frame = json.loads(line)
        if frame["type"] == "user":
            return dict(frame)
    raise SystemExit


def begin(prompt: dict[str, object]) -> None:
    say(type="system", subtype="init", model="m", tools=[], user_message_uuids=[prompt["uuid"]])


first = told()
begin(first)
text = str(first["message"]["content"])  # type: ignore[index]
if "and another" in text:
    second = told()
say(type="assistant", message={"id": "m1", "content": [{"type": "text", "text": text}], "model": "m"})
say(type="result", subtype="success", is_error=False, result=text, user_message_uuids=[first["uuid"]], usage={})
if "on its own" in text:
    time.sleep(1.0)  # whoever closes the session now finds it idle
    begin(second)
    time.sleep(600)
