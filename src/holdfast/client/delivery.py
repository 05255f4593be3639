"""The task that delivers webhooks. Workers register it when they serve its queue."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from holdfast.effects.address import rule_with
from holdfast.effects.deliver import Deliverer, NotDelivered, Poster, Postponed, WebhookDelivery, open_poster
from holdfast.effects.seal import unseal
from holdfast.errors import ConfigurationError, InvalidPayload
from holdfast.model.context import CONTEXT, Context
from holdfast.model.limit import Breaker, Limit
from holdfast.model.webhook import QUEUE, TASK, Target
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.client.app import Holdfast

# Shared by a tenant's endpoints at one host, so that many endpoints cannot direct all workers at it. The SQL function
# delivery_keys() makes the key.
HOST_LIMIT = Limit("webhook-host:{host}", concurrency=20)
_registering = threading.Lock()


def can_deliver() -> bool:
    """Return whether the extra `webhooks` is installed."""
    return importlib.util.find_spec("aiohttp") is not None


def serve(hf: Holdfast, settings: Settings) -> Settings:
    """Return the settings of a worker, with the queues it serves. Register the task if it serves webhooks."""
    settings = with_queues(hf, settings)
    if QUEUE in settings.queue_list and can_deliver():
        register(hf)
    return settings


def with_queues(hf: Holdfast, settings: Settings) -> Settings:
    """Return the settings with the queues that a worker of this application serves.

    The default is "default" and the queues of channels and webhooks. The queue of webhooks is left out if they cannot
    be delivered here, unless it is named and the application has its own tasks in it."""
    if not settings.queues.strip(" ,"):
        return settings.with_(queues=_default_queues(hf))
    if QUEUE in settings.queue_list and not can_deliver():
        return _without_webhooks(hf, settings)
    return settings


def register(hf: Holdfast) -> None:
    """Add the task to an application, once."""
    with _registering:
        if TASK not in hf.registry.tasks:
            _add_task(hf)


def _default_queues(hf: Holdfast) -> list[str]:
    channels = {channel.task.queue for channel in hf.registry.channels.values()}
    webhooks = {QUEUE} if can_deliver() else set()
    return ["default", *sorted((channels | webhooks) - {"default"})]


def _without_webhooks(hf: Holdfast, settings: Settings) -> Settings:
    if any(task.queue == QUEUE for task in hf.registry.tasks.values()):
        return settings
    if settings.queue_list == [QUEUE]:
        raise ConfigurationError(
            "the only queue is webhooks, which cannot be delivered here: pip install 'holdfast-jobs[webhooks]'"
        )
    return settings.with_(queues=[name for name in settings.queue_list if name != QUEUE])


def _add_task(hf: Holdfast) -> None:
    async def opener() -> AsyncIterator[Poster]:
        async with open_poster(rule_with(hf.settings.nat64_prefixes)) as poster:
            yield poster

    # Errors such as a removed or disabled endpoint say nothing about the receiver, and do not count.
    breaker = Breaker(after=10, pause=60, cap=3600, on=[NotDelivered, Postponed])
    limit = Limit("webhook:{endpoint}", concurrency=20, breaker=breaker)
    deliverer, opened = _deliverer(hf), hf.resource(opener)
    hf.registry.add_limits(TASK, [HOST_LIMIT])

    async def deliver(
        endpoint: UUID, event: UUID, type: str, body_id: UUID, *, poster: Poster = opened.value, ctx: Context = CONTEXT
    ) -> None:
        pause = hf.webhooks.retry.delay(ctx.attempt)
        message = WebhookDelivery(ctx.job_id, ctx.tenant, str(endpoint), str(event), type, str(body_id), pause)
        response = await deliverer.deliver(poster, message)
        try:
            ctx.set_result(response)
        except InvalidPayload:  # above HOLDFAST_MAX_RESULT; the delivery has succeeded nevertheless
            with suppress(InvalidPayload):
                ctx.set_result({"http_status": response["http_status"], "cut": True})

    hf.task(name=TASK, queue=QUEUE, retry=hf.webhooks.retry, limits=[limit])(deliver)


def _deliverer(hf: Holdfast) -> Deliverer:
    """Return the deliverer, which reads endpoints and bodies from the application's database."""
    calls = hf.webhooks.calls

    async def read(endpoint: str) -> Target | None:
        found = await hf.database.async_pool.run(calls.read(endpoint))
        return found and replace(found, secrets=_opened(found.secrets, hf.settings.secret_keys))

    async def read_body(body_id: str, tenant: str | None) -> str | None:
        return await hf.database.async_pool.run(calls.read_body(body_id, tenant))

    async def shut(endpoint: str, reason: str, url: str) -> bool:
        return await hf.database.async_pool.run(calls.disable(endpoint, reason, url=url))

    return Deliverer(read, read_body, shut)


def _opened(stored: list[str], keys: str) -> list[str]:
    """Decrypt secrets, the newest first. Older ones are skipped if their key was lost, a reason for rotation."""
    newest, *older = stored
    opened = [unseal(newest, keys)]
    for each in older:
        with suppress(ConfigurationError):
            opened.append(unseal(each, keys))
    return opened
