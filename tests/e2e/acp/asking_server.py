"""An MCP server whose tools ask their user: `order` by a form with a field of each kind, `visit` by an address. JSON-RPC on stdio."""

import json
import sys
from typing import Any

SIZES = [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]
FORM = {
    "mode": "form",
    "message": "What shall it be?",
    "requestedSchema": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "title": "Name", "minLength": 1, "maxLength": 40},
            "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "size": {"type": "string", "oneOf": SIZES},
            "extras": {"type": "array", "items": {"anyOf": SIZES}},
            "gift": {"type": "boolean"},
        },
        "required": ["name", "count"],
    },
}
VISIT = {
    "mode": "url",
    "message": "Log in, please.",
    "url": "https://example.com/login?id=1",
    "elicitationId": "visit-1",
}
ASKS = {"order": FORM, "visit": VISIT}
TOOLS = [{"name": name, "description": "Ask.", "inputSchema": {"type": "object", "properties": {}}} for name in ASKS]


def send(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask(params: dict[str, Any]) -> str:
    """Ask, and wait for the answer to that."""
    send(id="asked", method="elicitation/create", params=params)
    for line in sys.stdin:
        reply = json.loads(line)
        if reply.get("id") == "asked" and "method" not in reply:
            return json.dumps(reply.get("result") or reply.get("error"))
    return "no answer"


def answer(method: str, params: dict[str, Any]) -> dict[str, Any]:
    if method == "initialize":
        info = {"name": "asking", "version": "1"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": TOOLS}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": ask(ASKS[params["name"]])}]}
    return {}


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            send(id=request["id"], result=answer(request["method"], request.get("params") or {}))


if __name__ == "__main__":
    main()
