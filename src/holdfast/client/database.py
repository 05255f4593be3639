"""The database of one application: its settings, its connections, and the messages that wake workers."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING

from holdfast.client.polling import Polling
from holdfast.settings import Settings
from holdfast.store.calls import Calls
from holdfast.wakeups.rabbitmq import Publisher

if TYPE_CHECKING:
    from holdfast.store.call import JobDueCallback
    from holdfast.store.wire.pools_async import AsyncPool
    from holdfast.store.wire.pools_sync import SyncPool


class Database:
    """`hf.database`. It connects with the first call."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.calls = Calls(settings.schema)
        self.polling = Polling()
        self.publisher = Publisher(settings)

    @property
    def url(self) -> str:
        """The database's address for psql and other libraries.

        This is the DSN itself. For embedded:PATH it starts the server there, which runs until the process ends."""
        from holdfast.store.wire.connect import server_dsn

        return server_dsn(self.settings)

    @functools.cached_property
    def sync_pool(self) -> SyncPool:
        """The connection pool for threads."""
        from holdfast.store.wire.pools_sync import (
            SyncPool,
        )  # psycopg takes half of the import time, and may not be needed

        return SyncPool(self.settings, self._on_job_due)

    @functools.cached_property
    def async_pool(self) -> AsyncPool:
        """The connection pool for coroutines."""
        from holdfast.store.wire.pools_async import AsyncPool

        return AsyncPool(self.settings, self._on_job_due)

    @property
    def _on_job_due(self) -> JobDueCallback | None:
        return self.publisher.publish if self.settings.amqp_enabled else None

    def notify(self, job_id: str, *, committed: bool = True) -> None:
        """Notify workers of a job through RabbitMQ if amqp_enabled is set, in the background and without errors.

        Every call that makes a job due calls it. For a job that is not committed yet, the message is sent later."""
        if self.settings.amqp_enabled:
            self.publisher.publish(job_id, committed=committed)

    def close(self) -> None:
        """Close the sync connections, and the one to RabbitMQ."""
        self.publisher.close()
        if "sync_pool" in self.__dict__:
            self.sync_pool.close()

    async def close_loop(self) -> None:
        """Close this event loop's connections."""
        if "async_pool" in self.__dict__:
            await self.async_pool.close()

    async def close_all(self) -> None:
        """Close this event loop's connections and everything that close() closes."""
        await self.close_loop()
        await asyncio.to_thread(self.publisher.close)  # it may wait for its last message
        self.close()
