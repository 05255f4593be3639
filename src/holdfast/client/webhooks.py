"""Webhooks: endpoints, and events published to them. Each delivery is a job (delivery.py)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from types import EllipsisType
from typing import Any, TypedDict, TypeVar, Unpack

from holdfast.client.operation import Items, Noun, Steps, Within, iteration, operation
from holdfast.effects.address import Rule, check_url, rule_with
from holdfast.effects.seal import seal
from holdfast.effects.signature import check_secret, new_secret
from holdfast.errors import ConfigurationError, InvalidPayload, UnknownEndpoint, UsageError
from holdfast.model import check, payload
from holdfast.model.job import ids, parse_id
from holdfast.model.retry import Retry
from holdfast.model.view import EVERYTHING, View
from holdfast.model.webhook import TASK, DeliveryInfo, Endpoint, Event, Published, Redelivered
from holdfast.store.call import Call
from holdfast.store.select import Page, Part
from holdfast.store.webhooks import Deliveries, WebhookCalls

# As recommended by Standard Webhooks: ten attempts within three days.
SCHEDULE = Retry.table([5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400], jitter=0.1)
STEP = 500
T = TypeVar("T")
Endpoints = list[Endpoint]
Redeliveries = list[Redelivered]
Infos = list[DeliveryInfo]


class DeliveryFilter(TypedDict, total=False):
    """A filter of deliveries; all given values must match. status is PENDING, DELIVERED or FAILED; since and until
    apply to the time of creation."""

    endpoint: str | None
    tenant: str | None
    event: str | None
    event_type: str | None
    status: str | None
    since: datetime | None
    until: datetime | None


class Webhooks(Noun):
    """`hf.webhooks`. Workers that serve the queue "webhooks", which is one of the default queues, deliver."""

    @property
    def retry(self) -> Retry:
        """The retry policy of deliveries. Set it before workers start."""
        return self._hf.registry.webhook_retry or SCHEDULE

    @retry.setter
    def retry(self, policy: Retry) -> None:
        given: Any = policy  # callers may not use a type checker
        if not isinstance(given, Retry):
            raise ConfigurationError(f"retry must be a policy such as Retry.fixed(60, max_attempts=3), got {given!r}")
        self._hf.registry.webhook_retry = policy
        if (task := self._hf.registry.tasks.get(TASK)) is not None:
            task.retry = policy

    @property
    def calls(self) -> WebhookCalls:
        return WebhookCalls(self._hf.settings.schema)

    def _add(
        self,
        url: str,
        *,
        tenant: str | None = None,
        events: Sequence[str] | None = None,
        prefix: str = "Holdfast",
        timeout: float = 30.0,
        dev: bool = False,
        secret: str | None = None,
        description: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Steps[Endpoint]:
        """Create an endpoint. Only the returned value has its `secret`, which is generated if not given.

        It receives its tenant's events (without a tenant, events that have none) of the given types: "order.paid", or
        "order.*" for all with this prefix; None is all. prefix is that of the headers, `X-<prefix>-Signature`; timeout
        is seconds for a whole delivery. dev allows http and private addresses, for development. As with every change of
        an endpoint, by and reason are for the log of actions.
        """
        id_, secret, call = self.adding(url, tenant, events, prefix, timeout, dev, secret, description, by, reason)
        yield call
        return replace((yield from self._get(id_)), secret=secret)

    add, aadd = operation(_add)

    def adding(
        self,
        url: str,
        tenant: str | None,
        events: Sequence[str] | None,
        prefix: str,
        timeout: float,
        dev: bool,
        secret: str | None,
        description: str | None,
        by: str | None,
        reason: str | None,
        view: View = EVERYTHING,
    ) -> tuple[str, str, Call[bool]]:
        # Returns a new endpoint's id and secret, and the call that creates it, for the service's transactions.
        secret = _checked_secret(secret)
        check.number_of_seconds(timeout, "timeout")
        call = self.calls.add(
            id_ := ids.make(),
            check_url(url, dev, self._rule).url,
            seal(secret, self._hf.settings.secret_keys),
            tenant=check.tenant(tenant),
            events=_events(events),
            prefix=prefix,
            timeout=timeout,
            dev=dev,
            description=description,
            by=by,
            reason=reason,
            view=view,
        )
        return id_, secret, call

    def _get(self, endpoint_id: str) -> Steps[Endpoint]:
        """Return an endpoint, without its secrets. Raise UnknownEndpoint if there is none."""
        found: Endpoints = yield self.calls.endpoints(id_=parse_id(endpoint_id))
        return _found(endpoint_id, found[0] if found else None)

    get, aget = operation(_get)

    def _update(
        self,
        endpoint_id: str,
        *,
        url: str | EllipsisType = ...,
        events: Sequence[str] | EllipsisType | None = ...,
        prefix: str | EllipsisType = ...,
        timeout: float | EllipsisType = ...,
        dev: bool | EllipsisType = ...,
        description: str | EllipsisType | None = ...,
        by: str | None = None,
        reason: str | None = None,
    ) -> Steps[Endpoint]:
        """Change an endpoint; fields that are not given stay. Waiting deliveries use the new values."""
        given = {
            "url": url,
            "events": events,
            "prefix": prefix,
            "timeout": timeout,
            "dev": dev,
            "description": description,
        }
        change = {name: value for name, value in given.items() if not isinstance(value, EllipsisType)}
        return (yield from self.changing(endpoint_id, change, by=by, reason=reason))

    update, aupdate = operation(_update)

    def changing(
        self, endpoint_id: str, change: dict[str, Any], *, by: str | None, reason: str | None, view: View = EVERYTHING
    ) -> Steps[Endpoint]:
        # Checks and makes a change, and returns the endpoint, for the service.
        if not change:
            raise UsageError(f"nothing to change; give a field, as in update({endpoint_id!r}, timeout=10)")
        if "events" in change:
            change["events"] = _events(change["events"])
        if "timeout" in change:
            check.number_of_seconds(change["timeout"], "timeout")
        if "url" in change or "dev" in change:
            now = yield from self._get(endpoint_id)
            change["url"] = check_url(change.get("url", now.url), change.get("dev", now.dev), self._rule).url
        _found(endpoint_id, (yield self.calls.change(parse_id(endpoint_id), change, by, reason, view)))
        return (yield from self._get(endpoint_id))

    def _rotate(
        self,
        endpoint_id: str,
        *,
        keep_old_for: float = 86_400,
        secret: str | None = None,
        by: str | None = None,
        reason: str | None = None,
    ) -> Steps[str]:
        """Give an endpoint a new secret and return it. For keep_old_for seconds deliveries are signed with the old
        ones too, so that the receiver may use either."""
        secret, call = self.rotating(endpoint_id, keep_old_for, secret, by=by, reason=reason)
        _found(endpoint_id, (yield call))
        return secret

    rotate, arotate = operation(_rotate)

    def rotating(
        self,
        endpoint_id: str,
        keep_old_for: float,
        secret: str | None = None,
        *,
        by: str | None,
        reason: str | None,
        view: View = EVERYTHING,
    ) -> tuple[str, Call[bool]]:
        # Returns a new secret, and the call that gives it to an endpoint.
        check.seconds(keep_old_for, "keep_old_for")
        secret = _checked_secret(secret)
        sealed = seal(secret, self._hf.settings.secret_keys)
        return secret, self.calls.rotate(parse_id(endpoint_id), sealed, keep_old_for, by, reason, view)

    def _disable(self, endpoint_id: str, reason: str | None = None, *, by: str | None = None) -> Steps[None]:
        """Disable deliveries to an endpoint; waiting ones fail when they are due."""
        if not (yield self.calls.disable(parse_id(endpoint_id), reason, by=by)):
            yield from self._get(endpoint_id)  # raises if there is none; otherwise it was disabled before

    disable, adisable = operation(_disable)

    def _enable(self, endpoint_id: str, *, by: str | None = None, reason: str | None = None) -> Steps[None]:
        """Enable deliveries to an endpoint, and close its breaker."""
        _found(endpoint_id, (yield self.calls.enable(parse_id(endpoint_id), by, reason)))

    enable, aenable = operation(_enable)

    def _remove(self, endpoint_id: str, *, by: str | None = None, reason: str | None = None) -> Steps[None]:
        """Remove an endpoint and its secrets; waiting deliveries fail when they are due."""
        _found(endpoint_id, (yield self.calls.remove(parse_id(endpoint_id), by, reason)))

    remove, aremove = operation(_remove)

    def _publish(self, conn: Any, event: Event, *, priority: int = 2) -> Steps[Published]:
        """Publish an event to the endpoints of its type when conn's transaction commits; with None, at once."""
        result: Published = yield Within(self._publishing(event, priority), conn)
        return result

    publish, apublish = operation(_publish)

    def _test(self, endpoint_id: str) -> Steps[str]:
        """Send an event of type holdfast.test to an endpoint, in one attempt. Return the delivery's id."""
        delivery: str | None = yield self.testing(endpoint_id)
        return _found(endpoint_id, delivery)

    test, atest = operation(_test)

    def testing(self, endpoint_id: str) -> Call[str | None]:
        # Returns the call that sends the test event.
        body = payload.encode({"type": "holdfast.test", "sent_at": datetime.now(UTC)}, "the event").decode()
        return self.calls.test(parse_id(endpoint_id), ids.make(), body)

    def _delivery(self, delivery_id: str) -> Steps[DeliveryInfo | None]:
        """Return a delivery, or None."""
        part: Part[DeliveryInfo] = yield self.calls.deliveries(Deliveries(id=parse_id(delivery_id)), Page(limit=1))
        return part.rows[0] if part.rows else None

    delivery, adelivery = operation(_delivery)

    def _deliveries(self, *, limit: int = 50, **which: Unpack[DeliveryFilter]) -> Steps[Infos]:
        """Return the newest deliveries that match endpoint, tenant, event, event_type, status (PENDING, DELIVERED,
        FAILED), since and until."""
        part: Part[DeliveryInfo] = yield self.calls.deliveries(_delivery_filter(**which), Page(limit=limit))
        return part.rows

    deliveries, adeliveries = operation(_deliveries)

    def _redeliver(self, *delivery_ids: str) -> Call[Redeliveries]:
        """Deliver again: a failed delivery with fresh attempts, one that has ended as a new delivery of the same event,
        a waiting one at once."""
        return self.calls.redeliver([parse_id(each) for each in delivery_ids])

    redeliver, aredeliver = operation(_redeliver)

    def _redeliver_all(self, **which: Unpack[DeliveryFilter]) -> Generator[Call[Any] | Items[Redelivered], Any, None]:
        """Deliver all that match again, by the filters of deliveries(); the default status is FAILED. Works in small
        committed steps, as you iterate."""
        status = which.pop("status", None) or "FAILED"
        if not any(value is not None for value in which.values()):
            raise UsageError("no deliveries selected; give an endpoint, a tenant, an event, or a time (since=, until=)")
        where = _delivery_filter(**which, status=status)
        if where.until is None:  # leaves out the deliveries made here
            where = replace(where, until=(yield self.calls.now()))
        page = Page(limit=STEP, order="oldest")
        while some := (yield self.calls.delivery_ids(where, page)):
            page = replace(page, after=some[-1])
            yield Items((yield self.calls.redeliver(some)))

    redeliver_all, aredeliver_all = iteration(_redeliver_all)

    def _list(self, *, tenant: str | None = None) -> Call[Endpoints]:
        """Return all endpoints, or those of a tenant, without their secrets."""
        return self.calls.endpoints(View(tenant=tenant))

    list, alist = operation(_list)

    def _publishing(self, event: Event, priority: int) -> Call[Published]:
        given: Any = event  # callers may not use a type checker
        if not isinstance(given, Event):
            raise UsageError(f'an event must be an Event, as in Event("order.paid", {{"order": 7}}), got {given!r:.60}')
        check.priority(priority)
        check.name(event.type, "an event's type")
        check.tenant(event.tenant)
        if event.key is not None:
            payload.check_text(event.key, "an event's key", 300)
        id_ = ids.make() if event.id is None else parse_id(event.id)
        policy = self._hf.registry.webhook_retry
        attempts = None if policy is None else policy.max_attempts
        return self.calls.publish(
            event, id_, self._body(event.body), priority=priority, max_attempts=attempts, fresh=event.id is None
        )

    def _body(self, body: Any) -> str:
        """Return the text that is signed and sent."""
        raw = isinstance(body, bytes | bytearray | memoryview)
        data = bytes(body) if raw else payload.encode(body, "an event's body")
        if len(data) > (most := self._hf.settings.max_payload):
            raise InvalidPayload(
                f"an event's body has {len(data):,} bytes, more than the {most:,} allowed; send a reference to what is "
                "large, or raise HOLDFAST_MAX_PAYLOAD"
            )
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise InvalidPayload(f"an event's body is bytes that are not UTF-8: {error}") from None
        if "\x00" in text:
            raise InvalidPayload("an event's body contains a NUL, which PostgreSQL cannot store")
        return text

    @property
    def _rule(self) -> Rule:
        return rule_with(self._hf.settings.nat64_prefixes)


def _delivery_filter(**which: Any) -> Deliveries:
    for name in ("endpoint", "event"):
        if which.get(name) is not None:
            which[name] = parse_id(which[name])
    if which.get("status") not in (None, "PENDING", "DELIVERED", "FAILED"):
        raise UsageError(f"the status of a delivery must be PENDING, DELIVERED or FAILED, got {which['status']!r}")
    for name in ("since", "until"):
        if (at := which.get(name)) is not None and (not isinstance(at, datetime) or at.tzinfo is None):
            raise UsageError(f"{name} must be a datetime with a time zone, got {at!r}")
    try:
        return Deliveries(**which)
    except TypeError as error:
        raise UsageError(
            f"deliveries are filtered by endpoint, tenant, event, event_type, status, since and until ({error})"
        ) from None


def _found(endpoint_id: str, result: T | None) -> T:
    if not result:
        raise UnknownEndpoint(endpoint_id)
    return result


def _checked_secret(secret: str | None) -> str:
    if secret is None:
        return new_secret()
    try:
        check_secret(payload.check_text(secret, "a secret", 500))
    except UsageError:
        raise UsageError("a secret must be a string of 16 to 500 characters that PostgreSQL can store") from None
    except ValueError as error:
        raise UsageError(str(error)) from None
    return secret


def _events(events: Any) -> list[str] | None:
    if events is None:
        return None
    if isinstance(events, str):
        raise UsageError(f'events must be a list of types, as in ["{events}"], got the string {events!r:.60}')
    if not isinstance(events, list | tuple | set | frozenset):
        raise UsageError(f'events must be a list of types, as in ["order.paid"], got {events!r:.60}')
    return [check.name(each, "an event's type") for each in events]
