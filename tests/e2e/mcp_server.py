"""The good MCP server of the `mcp` scenarios: JSON-RPC on stdio, with the tools `add`, `choose` and `count`. It ends when its stdin does.

`count` answers with structured content: alone, or beside a text with `words`.
`choose` asks the user by an elicitation (its argument `ask`, else `QUESTION`) and gives the answer back.
"""

import json
import sys
from typing import Any

NUMBER = {"type": "number"}
ADD = {
    "name": "add",
    "description": "Add two numbers.",
    "inputSchema": {"type": "object", "properties": {"a": NUMBER, "b": NUMBER}, "required": ["a", "b"]},
}
CHOOSE = {
    "name": "choose",
    "description": "Ask the user.",
    "inputSchema": {"type": "object", "properties": {"ask": {"type": "object"}}},
}
COUNT = {
    "name": "count",
    "description": "Count.",
    "inputSchema": {"type": "object", "properties": {"words": {"type": "string"}}},
}
ASKED = "elicit-1"
QUESTION = {
    "message": "Which colour?",
    "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
}
FORM = {
    "message": "How shall it be painted?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "title": "Colour", "enum": ["red", "blue"], "enumNames": ["Red", "Blue"]},
            "coats": {"type": "integer", "title": "Coats", "minimum": 1, "maximum": 3, "default": 2},
            "gloss": {"type": "boolean", "description": "Shiny or not."},
            "sides": {"type": "array", "minItems": 1, "items": {"type": "string", "enum": ["front", "back", "top"]}},
            "note": {"type": "string", "maxLength": 20},
        },
        "required": ["colour", "gloss", "sides"],
    },
}
FILLED = {"colour": "blue", "coats": 2, "gloss": True, "sides": ["front", "top"]}
LOGIN = {
    "mode": "url",
    "message": "Log in to the paint shop.",
    "url": "https://shop.example/login?id=4711",
    "elicitationId": "login-4711",
}


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def choose(asked: dict[str, Any]) -> str:
    """Ask, and wait for the answer to that."""
    send(id=ASKED, method="elicitation/create", params=asked)
    for line in sys.stdin:
        reply = json.loads(line)
        if reply.get("id") == ASKED and "method" not in reply:
            return json.dumps(reply.get("result") or reply.get("error"))
    return "no answer"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "good", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [ADD, CHOOSE, COUNT]}
    if method == "tools/call" and params["name"] == "choose":
        return {"content": [{"type": "text", "text": choose(params["arguments"].get("ask", QUESTION))}]}
    if method == "tools/call" and params["name"] == "count":
        words = params["arguments"].get("words")
        content = [{"type": "text", "text": words}] if words else []
        return {"content": content, "structuredContent": {"counts": [1, 2], "unit": "\u00e9"}}
    if method == "tools/call":
        total = params["arguments"]["a"] + params["arguments"]["b"]
        return {"content": [{"type": "text", "text": str(total)}]}
    return {}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:  # a notification gets no answer
            result = answer(request["method"], request.get("params") or {})
            send(id=request["id"], result=result)


if __name__ == "__main__":
    main()
