"""An MCP server with tools of every kind, marked as our bridge marks them. Calls run side by side; it ends when its stdin does.

With the path of a file it writes each call, its `_meta` and each cancellation there. `rendezvous` answers when two calls are open.
"""

import json
import sys
import threading
from typing import Any

TOOLS = {"add": True, "fail": True, "rendezvous": True, "hang": True, "picture": True, "writes": False, "bye": True}
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
both = threading.Barrier(2)
lock = threading.Lock()


def say(frame: dict[str, Any]) -> None:
    with lock:
        print(json.dumps({"jsonrpc": "2.0", **frame}), flush=True)


def note(what: Any) -> None:
    if len(sys.argv) > 1:
        with lock, open(sys.argv[1], "a", encoding="utf-8") as file:
            file.write(json.dumps(what) + "\n")


def text(words: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": words}], **more}


def run(name: str, given: dict[str, Any]) -> dict[str, Any] | None:
    if name == "add":
        return text(str(given["a"] + given["b"]))
    if name == "fail":
        return text("it went wrong", isError=True)
    if name == "rendezvous":
        both.wait(20)
        return text("met")
    if name == "picture":
        return {"content": [{"type": "text", "text": "see"}, {"type": "image", "mimeType": "image/png", "data": PNG}]}
    return None if name == "hang" else text("done")


def call(asked: int, name: str, given: dict[str, Any]) -> None:
    if (result := run(name, given)) is not None:
        say({"id": asked, "result": result})


def answer(frame: dict[str, Any]) -> None:
    method, params = frame["method"], frame.get("params") or {}
    if method == "initialize":
        info = {"name": "tests", "version": "1"}
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
        say({"id": frame["id"], "result": result})
    elif method == "notifications/initialized" and len(sys.argv) > 1:
        say({"id": "mine", "method": "roots/list"})
    elif method == "tools/list":
        tools = [
            {"name": name, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": reads}}
            for name, reads in TOOLS.items()
        ]
        say({"id": frame["id"], "result": {"tools": tools}})
    elif method == "tools/call":
        note({"call": params["name"], "meta": params.get("_meta")})
        if params["name"] == "bye":
            sys.exit(1)
        threading.Thread(target=call, args=(frame["id"], params["name"], params["arguments"]), daemon=True).start()
    elif method == "notifications/cancelled":
        note({"cancelled": params["requestId"]})
    elif "id" in frame:
        say({"id": frame["id"], "error": {"code": -32601, "message": f"there is no method {method}"}})


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        if "method" in asked:
            answer(asked)
        else:
            note({"answered": asked["id"], "error": asked.get("error", {}).get("code")})
