"""Tokens of the service: list, create, revoke."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from msgspec import Meta
from starlette.responses import Response

from holdfast.model.token import SCOPES
from holdfast.web.dashboard import paging
from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.fields import Name, Paged
from holdfast.web.problems import Problem, unknown
from holdfast.web.routing import Needs

ADMINISTERS = Needs("admin", operator=True)
section = Section("Tokens", "/tokens", key="k", needs=ADMINISTERS)
OF_TENANTS = tuple(each for each in SCOPES if each not in ("metrics", "operate", "admin"))
Scope = Literal["jobs:read", "jobs:write", "webhooks:read", "webhooks:write", "metrics", "operate", "admin"]
Days = Annotated[float, Meta(gt=0, le=3650)]
Rate = Annotated[float, Meta(gt=0, le=1e6)]


class ListTokens(Paged):
    tenant: Name | None = None


class NewToken(ReasonForm, kw_only=True):
    """A token of a tenant; without one, of all tenants if `everyone` says so."""

    name: Name
    scopes: Annotated[list[Scope], Meta(min_length=1)]
    tenant: Name | None = None
    everyone: Literal["yes"] | None = None
    days: Days | None = None
    rate: Rate | None = None


@section.page("/tokens", "tokens.html", ADMINISTERS)
async def show(visit: Visit, query: ListTokens) -> Values:
    """List tokens, newest first."""
    before = await visit.before(query.cursor)
    found = await visit.run(visit.service.tokens.list(tenant=query.tenant, before=before, limit=query.limit))
    return {
        "title": "Tokens",
        "tokens": found,
        "scopes": SCOPES,
        "given": paging.filters(visit, "tenant"),
        "newest": paging.newest(visit),
        "older": await paging.older(visit, found[-1].id if len(found) == query.limit else None),
    }


@section.action("/tokens/create", ADMINISTERS)
async def create(visit: Visit, form: NewToken) -> Response:
    """Create a token, and show it in the response, which no browser keeps."""
    if (form.tenant is None) == (form.everyone is None):
        raise Problem(422, "form: give a tenant, or check that the token is for all tenants")
    if form.tenant is not None and (wide := [each for each in form.scopes if each not in OF_TENANTS]):
        raise Problem(422, f"form.scopes: a tenant's token cannot have {', '.join(wide)}")
    token, info = await visit.hf.tokens.acreate(
        form.name,
        tenant=form.tenant,
        scopes=form.scopes,
        lifetime=None if form.days is None else 86_400 * form.days,
        rate=form.rate,
        by=visit.caller.name,
        reason=form.reason,
    )
    whose = "all tenants" if info.tenant is None else f"the tenant {info.tenant}"
    values = {
        "title": f"Token {info.name}",
        "secret": token,
        "about": f"It is for {whose}, with the scopes {', '.join(info.scopes)}.",
        "back": "/tokens",
    }
    return await visit.dashboard.html(visit, "secret.html", values)


@section.action("/tokens/{token_id}/revoke", ADMINISTERS)
async def revoke(visit: Visit, token_id: UUID, form: ReasonForm) -> Done:
    """Revoke a token; sessions that began with it end."""
    tokens = visit.service.tokens
    found = await visit.run(tokens.list(id_=str(token_id)))
    if not found:
        raise unknown("token", token_id)
    await visit.run(tokens.revoke(str(token_id), visit.caller.name, form.reason))
    seconds = visit.hf.settings.token_cache
    return Done("/tokens", f"Revoked {found[0].name}; services accept it for at most {seconds:g} seconds more.")
