"""PgQueuer with asyncpg. Jobs of tenants have an entrypoint each, with `concurrency_limit=10`."""

import json
import time

import asyncpg
from adapter import LIMITED, RUNNING, TENANTS, PostgresAdapter, database, handled, main, payload, ready
from pgqueuer.db import AsyncpgDriver
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

DSN = database("peer_pgqueuer")
BATCH = 500


class Peer(PostgresAdapter):
    database = "peer_pgqueuer"
    packages = ("pgqueuer", "asyncpg", "uvloop")
    settings = f"asyncpg, batch_size={BATCH}, uvloop; enqueue of 5,000"
    pending_sql = "select count(*) from pgqueuer where status in ('queued', 'picked')"
    reset_sql = "truncate pgqueuer, pgqueuer_log, pgqueuer_statistics"

    async def setup(self):
        conn = await asyncpg.connect(DSN)
        await conn.execute("drop schema public cascade; create schema public")
        await Queries(AsyncpgDriver(conn)).install()
        await conn.close()

    async def open(self):
        self.conn = await asyncpg.connect(DSN)
        self.queries = Queries(AsyncpgDriver(self.conn))

    async def close(self):
        await self.conn.close()

    async def enqueue(self, job):
        await self.queries.enqueue("noop", json.dumps(job).encode())

    async def bulk(self, number):
        return await self._many(number, lambda n: "noop")

    async def bulk_tenants(self, number, tenants):
        return await self._many(number, lambda n: f"noop-{n % tenants}")

    async def _many(self, number, entrypoint, size=5000):
        await self.open()
        start = time.perf_counter()
        for first in range(0, number, size):
            part = range(first, min(number, first + size))
            bodies = [json.dumps(payload(n)).encode() for n in part]
            await self.queries.enqueue([entrypoint(n) for n in part], bodies, [0] * len(part))
        seconds = time.perf_counter() - start
        await self.close()
        return seconds

    def work(self):
        import uvloop

        async def run():
            manager = QueueManager(Queries(AsyncpgDriver(await asyncpg.connect(DSN))))
            names = [f"noop-{n}" for n in range(TENANTS)] if LIMITED else ["noop"]
            for name in names:

                @manager.entrypoint(name, **({"concurrency_limit": RUNNING} if LIMITED else {}))
                async def noop(job):
                    handled(json.loads(job.payload)["seq"])

            ready()
            await manager.run(batch_size=BATCH)

        uvloop.run(run())


if __name__ == "__main__":
    main(Peer())
