"""/v1/signals: give a signal its value, for the jobs that wait for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec
from msgspec import Meta

from holdfast.model.retry import LONGEST
from holdfast.web.body import read_value
from holdfast.web.context import RequestContext
from holdfast.web.fields import Body, Name
from holdfast.web.routing import WRITES, Routes

routes = Routes("/signals", "signals")


class NewSignal(Body):
    """A signal. Jobs of its tenant that wait for it (ctx.wait_for) go on with the value."""

    name: Name
    """The signal's name."""
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    """Its value, for the handler."""
    tenant: Name | None = None
    """Only with a token for all tenants; otherwise it is the token's tenant."""
    keep: Annotated[float, Meta(gt=0, le=LONGEST)] | None = None
    """Seconds for which it is kept for jobs that wait for it later; 30 days if left out."""


@dataclass(frozen=True, slots=True)
class SignalResult:
    """existing: the signal had a value already, which stays."""

    name: str
    existing: bool


@routes.post("", WRITES, status=201)
async def create(ctx: RequestContext, new: NewSignal) -> SignalResult:
    """Give a signal its value. The first value stays."""
    raw = msgspec.Raw(b"null") if new.value is msgspec.UNSET else new.value
    value = read_value(raw, "value", ctx.hf.settings.max_result)
    first = await ctx.hf.asignal(new.name, value, tenant=ctx.tenant(new.tenant), keep=new.keep, conn=ctx.conn)
    return SignalResult(new.name, not first)
