"""Sign in with an API token, sign out, and the theme."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta
from starlette.responses import Response

from holdfast.model.token import PREFIX, digest
from holdfast.web.dashboard import session as sessions
from holdfast.web.dashboard.access import SESSION, address
from holdfast.web.dashboard.form import Form
from holdfast.web.dashboard.section import Section, Values
from holdfast.web.dashboard.visit import LONGEST_PATH, Visit, inside
from holdfast.web.fields import Query

section = Section()
Path = Annotated[str, Meta(max_length=LONGEST_PATH)]
UNKNOWN = "This token is unknown, expired or revoked."


class Next(Query):
    next: Path | None = None
    """The path to load after the sign-in."""


class Credentials(Form):
    token: Annotated[str, Meta(max_length=200)]
    username: str | None = None
    """For password managers."""
    next: Path | None = None


class Theme(Form):
    theme: Literal["auto", "light", "dark"]
    next: Path | None = None


@section.page("/sign-in", "signin.html", None)
async def show(visit: Visit, query: Next) -> Values | Response:
    """Ask for a token."""
    if visit.viewer.caller is not None:
        return visit.redirect(inside(query.next))
    return {"title": "Sign in", "next": inside(query.next), "error": ""}


@section.action("/sign-in", None)
async def sign_in(visit: Visit, form: Credentials) -> Response:
    """Exchange a token for a session.

    A valid token signs in after any number of failures, which others at the address may have caused. Look-ups are
    coalesced as those of the API are, so failures cost the database at most two calls at a time."""
    token = form.token.strip()
    key = digest(token) if token.startswith(PREFIX) else None
    caller = await visit.service.caller(key)
    if key is None or caller is None:
        visit.dashboard.access.failures.add(address(visit.request))
        values = {"title": "Sign in", "next": inside(form.next), "error": UNKNOWN}
        return await visit.dashboard.html(visit, "signin.html", values, 401)
    response = visit.redirect(inside(form.next))
    session = sessions.begin(key, caller.seconds_left)
    visit.set_cookie(response, SESSION, sessions.seal(visit.key, session), sessions.LIFETIME)
    return response


@section.action("/sign-out", None)
async def sign_out(visit: Visit) -> Response:
    """End the session."""
    response = visit.redirect("/sign-in")
    visit.set_cookie(response, SESSION, "", 0)
    return response


@section.action("/theme", None)
async def theme(visit: Visit, form: Theme) -> Response:
    """Set light or dark, for browsers without scripts."""
    response = visit.redirect(inside(form.next))
    visit.set_cookie(response, "holdfast_theme", form.theme, 365 * 86_400, script=True)
    return response
