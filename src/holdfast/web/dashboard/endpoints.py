"""Forms that add and change an endpoint of webhooks; errors are shown beside what was typed."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import Meta
from starlette.responses import Response

from holdfast.errors import UsageError
from holdfast.model.webhook import Endpoint
from holdfast.web.dashboard.form import ReasonForm
from holdfast.web.dashboard.section import Done, Section, Values
from holdfast.web.dashboard.visit import Visit
from holdfast.web.dashboard.webhooks import done
from holdfast.web.fields import LongText, Name
from holdfast.web.problems import Problem
from holdfast.web.routing import WRITES_HOOKS
from holdfast.web.webhooks import check_dev
from holdfast.web.webhooks import get as find_endpoint

section = Section()
Typed = Annotated[str, Meta(max_length=20_000)]
SEPARATOR = re.compile(r"[\s,]+")


class NewEndpoint(ReasonForm, kw_only=True):
    """An endpoint, as typed."""

    url: LongText = ""
    tenant: Name | None = None
    events: Typed = ""
    prefix: Name = "Holdfast"
    timeout: Typed = "30"
    dev: Literal["yes"] | None = None
    description: LongText | None = None


class EndpointForm(ReasonForm, kw_only=True):
    """An endpoint's new values, as typed. Its tenant stays."""

    url: LongText = ""
    events: Typed = ""
    prefix: Name = "Holdfast"
    timeout: Typed = "30"
    dev: Literal["yes"] | None = None
    description: LongText | None = None


def page(form: NewEndpoint | EndpointForm, endpoint: Endpoint | None, error: str = "") -> Values:
    """Return the values of the form's page."""
    title = "Add an endpoint" if endpoint is None else "Change an endpoint"
    return {"title": title, "endpoint": endpoint, "form": msgspec.structs.asdict(form), "error": error}


@section.page("/webhooks/add", "endpoint_form.html", WRITES_HOOKS)
async def show_add(visit: Visit) -> Values:
    """Show the form of a new endpoint."""
    return page(NewEndpoint(), None)


@section.page("/webhooks/{endpoint_id}/change", "endpoint_form.html", WRITES_HOOKS)
async def show_change(visit: Visit, endpoint_id: UUID) -> Values:
    """Show the form of an endpoint, with its values."""
    found = await find_endpoint(visit, endpoint_id)
    form = EndpointForm(
        url=found.url,
        events=", ".join(found.events or []),
        prefix=found.prefix,
        timeout=f"{found.timeout:g}",
        dev="yes" if found.dev else None,
        description=found.description,
    )
    return page(form, found)


@section.action("/webhooks/add", WRITES_HOOKS)
async def add(visit: Visit, form: NewEndpoint) -> Response:
    """Create an endpoint, and show its secret in the response, which no browser keeps."""
    try:
        check_dev(visit, form.dev is not None)
        values = typed(form) | {"tenant": visit.tenant(form.tenant)}
        id_, secret, call = visit.hf.webhooks.adding(**values, secret=None, by=visit.caller.name, reason=form.reason)
        await visit.run(call)
    except (Problem, UsageError) as error:
        return await refused(visit, form, None, error)
    visit.forget()
    about = f"It signs deliveries to {form.url}."
    shown = {"title": "Secret of the endpoint", "secret": secret, "about": about, "back": f"/webhooks/{id_}"}
    return await visit.dashboard.html(visit, "secret.html", shown)


@section.action("/webhooks/{endpoint_id}/change", WRITES_HOOKS)
async def change(visit: Visit, endpoint_id: UUID, form: EndpointForm) -> Done | Response:
    """Change what differs from the endpoint's values."""
    found = await find_endpoint(visit, endpoint_id)
    try:
        values = {name: value for name, value in typed(form).items() if value != getattr(found, name)}
        if not values:
            return done(visit, found, "Nothing was changed.")
        check_dev(visit, values.get("dev", found.dev and "url" in values))
        await visit.hf.webhooks.aupdate(found.id, by=visit.caller.name, reason=form.reason, **values)
    except (Problem, UsageError) as error:
        return await refused(visit, form, found, error)
    return done(visit, found, "Changed: waiting deliveries use the new values.")


def typed(form: NewEndpoint | EndpointForm) -> dict[str, Any]:
    """Return the values of a form as the client takes them."""
    try:
        timeout = float(form.timeout)
    except ValueError:
        raise Problem(422, f"the timeout must be a number of seconds, got {form.timeout[:60]!r}") from None
    return {
        "url": form.url,
        "events": [each for each in SEPARATOR.split(form.events) if each] or None,
        "prefix": form.prefix,
        "timeout": timeout,
        "dev": form.dev is not None,
        "description": form.description,
    }


async def refused(
    visit: Visit, form: NewEndpoint | EndpointForm, endpoint: Endpoint | None, error: Problem | UsageError
) -> Response:
    """Return the form with what was typed, and why it was refused."""
    status, text = (error.status, error.detail) if isinstance(error, Problem) else (422, str(error))
    return await visit.dashboard.html(visit, "endpoint_form.html", page(form, endpoint, text), status)
