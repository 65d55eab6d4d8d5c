"""Turning push messages to one browser on and off."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from clisup.client.raw import JsonObject
from clisup.errors import UsageError
from clisup.web.access.guard import SentForm
from clisup.web.pages.site import posted, site_of, visitor_of
from clisup.web.push.messages import push_address

__all__ = ["push", "push_values"]


@posted("observe")
async def push(request: Request, form: SentForm) -> Response:
    """Keep the push address of this browser, or remove it if the form has none."""
    site, token = site_of(request), visitor_of(request).token
    if form.get("endpoint"):
        try:
            address = push_address(form.get)
            await site.push.check(address)
        except ValueError as error:
            raise UsageError(
                f"cannot notify this browser, because {error}", kind="invalid_params", hint="load the page again"
            ) from None
        site.book.set_push_address(token.id, address)
    else:
        site.book.set_push_address(token.id, None)
    return RedirectResponse("/", 303)


def push_values(request: Request) -> JsonObject:
    """Return what the button needs: the public key of this machine, and whether this browser gets messages."""
    site, token = site_of(request), visitor_of(request).token
    return {"push_key": site.push.public_key, "notified": token.id in site.book.push_addresses()}
