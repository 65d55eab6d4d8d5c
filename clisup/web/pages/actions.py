"""Actions of the role `drive`: open a session, prompt, steer, interrupt and close."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from clisup.client.options import given
from clisup.client.raw import JsonObject
from clisup.client.reconnect import new_key
from clisup.errors import UsageError
from clisup.web.access.guard import SentForm
from clisup.web.pages.site import page_of, posted, root_of, shown, site_of, visitor_of

__all__ = ["close", "create", "interrupt", "new", "prompt"]


@shown
async def new(request: Request) -> Response:
    """Show the form for a new session."""
    status = await site_of(request).link.call("daemon/status")
    backends = [(row["name"], bool(row["default"])) for row in status["backends"] if row["unavailable_reason"] is None]
    places = list(dict.fromkeys(str(row["cwd"]) for row in status["sessions"]))[:20]
    return page_of(
        request, "new.html", title="New session", backends=backends, places=places, id=new_key(), key=new_key()
    )


@posted("drive")
async def create(request: Request, form: SentForm) -> Response:
    """Open a session and send its first prompt. The form brings both ids, so a form that is sent twice acts once."""
    options: JsonObject = {
        name: form.get(name).strip() or None for name in ("title", "model", "permission_mode", "mode")
    }
    text, session_id = _text(form), form.get("session_id")
    async with site_of(request).link.acting(visitor_of(request).token) as client:
        await client.call("session/new", **given({
            "session_id": session_id, "backend": form.get("backend") or None, "cwd": form.get("cwd").strip(), **options,
            "worktree": True if form.get("worktree") else None,
        }))  # fmt: skip
        await client.prompt(session_id, text, key=form.get("key") or None, wait=False)
    return RedirectResponse(f"{root_of(request)}/sessions/{session_id}", 303)


@posted("drive")
async def prompt(request: Request, form: SentForm) -> Response:
    """Send a prompt: `how` is queue, or steer for one that goes into the running turn."""
    how = form.get("how")
    when_busy = how if how in ("queue", "steer") else "queue"
    async with site_of(request).link.acting(visitor_of(request).token) as client:
        await client.prompt(_id(request), _text(form), key=form.get("key") or None, wait=False, when_busy=when_busy)
    return _back(request)


@posted("drive")
async def interrupt(request: Request, form: SentForm) -> Response:
    """End the running turn, or take a queued turn out of the queue."""
    async with site_of(request).link.acting(visitor_of(request).token) as client:
        await client.call(
            "session/interrupt", **given({"session_id": _id(request), "turn_id": form.get("turn_id") or None})
        )
    return _back(request)


@posted("drive")
async def close(request: Request, form: SentForm) -> Response:
    """Close the session."""
    async with site_of(request).link.acting(visitor_of(request).token) as client:
        await client.call("session/close", session_id=_id(request))
    return _back(request)


def _id(request: Request) -> str:
    return str(request.path_params["session_id"])


def _back(request: Request) -> Response:
    return RedirectResponse(f"{root_of(request)}/sessions/{_id(request)}", 303)


def _text(form: SentForm) -> str:
    text = form.get("prompt").replace("\r\n", "\n").strip()
    if not text:
        raise UsageError("the prompt is empty", kind="invalid_params", hint="write a prompt")
    return text
