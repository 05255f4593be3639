"""/v1/webhooks: endpoints, events and deliveries."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from fastapi import APIRouter, Query
from starlette.responses import Response

from holdfast.model.webhook import DeliveryInfo, Endpoint, Event, Published, Redelivered
from holdfast.store.calls import Call
from holdfast.store.seen import Page
from holdfast.store.webhooks import Deliveries
from holdfast.web import shapes
from holdfast.web.body import BodyRoute
from holdfast.web.problems import FOR_CHANGES, FOR_ONE, Problem, unknown
from holdfast.web.service import Asked, ReadsHooks, WritesHooks, answer

router = APIRouter(prefix="/webhooks", tags=["webhooks"], route_class=BodyRoute)
PRIORITY = 2  # of deliveries, unless the token's best is lower
DeliveryStatus = Literal["PENDING", "DELIVERED", "FAILED"]


@router.get("/endpoints", response_model=shapes.Endpoints)
async def endpoints(asked: ReadsHooks) -> Response:
    """Endpoints, without their secrets: the newest 1,000."""
    return answer(shapes.Endpoints(await asked.run(asked.service.seen.endpoints(asked.caller))))


@router.post("/endpoints", status_code=201, response_model=Endpoint, responses=FOR_CHANGES)
async def add(new: shapes.NewEndpoint, asked: WritesHooks) -> Response:
    """Makes an endpoint; its secret is in the answer, and nowhere after that."""
    _check_dev(asked, new.dev)
    given = {**new.model_dump(), "tenant": asked.tenant(new.tenant), "secret": None}

    async def act(conn: Any) -> Response:
        id_, secret, call = asked.hf.webhooks.adding(**given)
        await asked.run(call, conn)
        made = (await asked.run(asked.service.seen.endpoints(asked.caller, id_), conn))[0]
        return _without_secret(answer(replace(made, secret=secret), 201), made)

    return await asked.once(act)


@router.get("/endpoints/{endpoint_id}", response_model=Endpoint, responses=FOR_ONE)
async def get(endpoint_id: UUID, asked: ReadsHooks) -> Response:
    """An endpoint, without its secrets."""
    return answer(await _look(asked, endpoint_id))


@router.patch("/endpoints/{endpoint_id}", response_model=Endpoint, responses=FOR_CHANGES)
async def update(endpoint_id: UUID, change: shapes.EndpointChange, asked: WritesHooks) -> Response:
    """Changes an endpoint."""
    found = await _look(asked, endpoint_id)
    given = change.model_dump(exclude_unset=True)
    for name in ("url", "prefix", "timeout", "dev"):
        if name in given and given[name] is None:
            raise Problem(422, f"{name} cannot be null; leave it out to keep it")
    # An operator may have let this one reach inside; where to, is the operator's choice too.
    _check_dev(asked, given.get("dev", found.dev and "url" in given))
    return answer(await asyncio.to_thread(asked.hf.webhooks.update, found.id, **given))


@router.delete("/endpoints/{endpoint_id}", response_model=shapes.Done, responses=FOR_CHANGES)
async def remove(endpoint_id: UUID, asked: WritesHooks) -> Response:
    """Removes an endpoint and its secrets."""
    found = await _look(asked, endpoint_id)
    await asked.run(asked.hf.webhooks.calls.remove(found.id))
    return answer(shapes.Done(1))


@router.post("/endpoints/{endpoint_id}/rotate", response_model=shapes.Secret, responses=FOR_CHANGES)
async def rotate(endpoint_id: UUID, asked: WritesHooks, how: shapes.Rotation | None = None) -> Response:
    """Gives an endpoint a new secret, which is in the answer and nowhere after that."""
    found = await _look(asked, endpoint_id)
    keep = (how or shapes.Rotation()).keep_old_for

    async def act(conn: Any) -> Response:
        secret, call = asked.hf.webhooks.rotating(found.id, keep)
        if not await asked.run(call, conn):
            raise unknown("endpoint", endpoint_id)
        return _without_secret(answer(shapes.Secret(found.id, secret)), shapes.Secret(found.id, None))

    return await asked.once(act)


@router.post("/endpoints/{endpoint_id}/enable", response_model=shapes.Done, responses=FOR_CHANGES)
async def enable(endpoint_id: UUID, asked: WritesHooks) -> Response:
    """Lets deliveries go to an endpoint again, and closes its breaker."""
    found = await _look(asked, endpoint_id)

    async def act(conn: Any) -> Response:
        return await _changed(asked, asked.hf.webhooks.calls.enable(found.id), conn)

    return await asked.once(act)


@router.post("/endpoints/{endpoint_id}/disable", response_model=shapes.Done, responses=FOR_CHANGES)
async def disable(endpoint_id: UUID, asked: WritesHooks, why: shapes.Reason | None = None) -> Response:
    """Lets nothing more be delivered to an endpoint."""
    found = await _look(asked, endpoint_id)

    async def act(conn: Any) -> Response:
        call = asked.hf.webhooks.calls.disable(found.id, None if why is None else why.reason)
        return await _changed(asked, call, conn)

    return await asked.once(act)


@router.post("/endpoints/{endpoint_id}/test", status_code=201, response_model=shapes.Made, responses=FOR_CHANGES)
async def test(endpoint_id: UUID, asked: WritesHooks) -> Response:
    """Delivers an event of type holdfast.test to an endpoint, in one attempt; answers the delivery's id."""
    found = await _look(asked, endpoint_id)

    async def act(conn: Any) -> Response:
        if (made := await asked.run(asked.hf.webhooks.testing(found.id), conn)) is None:
            raise unknown("endpoint", endpoint_id)
        return answer(shapes.Made(made, existing=False), 201)

    return await asked.once(act)


@router.post("/events", status_code=201, response_model=Published, responses=FOR_CHANGES)
async def publish(new: shapes.NewEvent, asked: WritesHooks) -> Response:
    """Tells the tenant's endpoints that want it of an event."""

    async def act(conn: Any) -> Response:
        event = Event(new.type, new.body, tenant=asked.tenant(new.tenant), key=new.key)
        priority = max(PRIORITY, asked.caller.priority)
        return answer(await asked.hf.webhooks.apublish(conn, event, priority=priority), 201)

    return await asked.once(act)


@router.get("/deliveries", response_model=shapes.DeliveryPage)
async def deliveries(
    asked: ReadsHooks,
    endpoint: UUID | None = None,
    event: UUID | None = None,
    event_type: shapes.Name | None = None,
    status: DeliveryStatus | None = None,
    tenant: shapes.Name | None = None,
    since: Annotated[shapes.Since | None, Query(description="a time with its zone, or 90m, 24h, 30d")] = None,
    until: Annotated[shapes.Moment | None, Query(description="a time with its zone")] = None,
    cursor: shapes.Cursor = None,
    limit: shapes.Limit = 50,
) -> Response:
    """The newest deliveries that match."""
    which = Deliveries(endpoint=shapes.text(endpoint), event=shapes.text(event), event_type=event_type,
                       status=status, tenant=tenant, since=since, until=until)  # fmt: skip
    page = Page(limit=limit, before=await asked.before(cursor))
    calls = asked.service.seen
    if endpoint is not None:  # those have an index, whatever else there is
        found = await asked.run(calls.deliveries(asked.caller, which, page))
        end = found.rows[-1].id if found.cut or len(found.rows) == limit else None
        return answer(shapes.DeliveryPage(found.rows, await asked.service.seal(asked.caller, end)))
    some = await asked.service.page(asked.caller, lambda part: calls.deliveries(asked.caller, which, part), page)
    return answer(shapes.DeliveryPage(*some))


@router.get("/deliveries/{delivery_id}", response_model=DeliveryInfo, responses=FOR_ONE)
async def delivery(delivery_id: UUID, asked: ReadsHooks) -> Response:
    """A delivery: what was sent and what was answered."""
    call = asked.service.seen.deliveries(asked.caller, Deliveries(id=str(delivery_id)), Page(limit=1))
    found = (await asked.run(call)).rows
    if not found:
        raise unknown("delivery", delivery_id)
    return answer(found[0])


@router.post("/deliveries/{delivery_id}/redeliver", response_model=Redelivered, responses=FOR_CHANGES)
async def redeliver(delivery_id: UUID, asked: WritesHooks) -> Response:
    """Delivers again: a failed one with fresh attempts, one that has ended anew, a waiting one at once."""

    async def act(conn: Any) -> Response:
        told = await asked.run(asked.service.seen.redeliver(asked.caller, [str(delivery_id)]), conn)
        if not told or told[0].outcome == "unknown":
            raise unknown("delivery", delivery_id)
        return answer(told[0])

    return await asked.once(act)


async def _look(asked: Asked, endpoint_id: UUID) -> Endpoint:
    found = await asked.run(asked.service.seen.endpoints(asked.caller, str(endpoint_id)))
    if not found:
        raise unknown("endpoint", endpoint_id)
    return found[0]


def _check_dev(asked: Asked, dev: bool) -> None:
    """Private addresses are the operator's: a tenant that could name them would reach what is behind the firewall."""
    if dev and not asked.caller.everyone:
        raise Problem(403, "dev is for tokens of all tenants; an endpoint of yours is https on a public address")


def _without_secret(made: Response, kept: Any) -> Response:
    """What is recorded for a repeated request has no secret in it."""
    made.kept = msgspec.json.encode(kept)  # type: ignore[attr-defined]
    return made


async def _changed(asked: Asked, call: Call[bool], conn: Any) -> Response:
    was = await asked.run(call, conn)
    return answer(shapes.Done(int(was)))
