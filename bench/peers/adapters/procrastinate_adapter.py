"""Procrastinate with psycopg 3. Jobs of tenants have `lock="tenant-N"`: one of each runs at a time."""

import logging
import time

import procrastinate
from adapter import PostgresAdapter, database, handled, main, payload, ready

logging.getLogger("procrastinate").setLevel(logging.WARNING)
DSN = database("peer_procrastinate")
CONCURRENCY = 10


def application(connector):
    app = procrastinate.App(connector=connector)

    @app.task(name="noop", queue="bench")
    async def noop(seq, pad=None):
        handled(seq)

    return app, noop


class Peer(PostgresAdapter):
    database = "peer_procrastinate"
    packages = ("procrastinate", "psycopg", "uvloop")
    settings = f"async task, concurrency={CONCURRENCY}, uvloop, LISTEN; batch_defer of 5,000"
    pending_sql = "select count(*) from procrastinate_jobs where status in ('todo', 'doing')"
    reset_sql = "truncate procrastinate_events, procrastinate_periodic_defers, procrastinate_jobs cascade"

    def setup(self):
        self.execute(self.database, "drop schema public cascade; create schema public")
        app, _ = application(procrastinate.SyncPsycopgConnector(conninfo=DSN))
        with app.open():
            app.schema_manager.apply_schema()

    def open(self):
        self.app, self.noop = application(procrastinate.SyncPsycopgConnector(conninfo=DSN, min_size=1, max_size=1))
        self.app.open()

    def close(self):
        self.app.close()

    def enqueue(self, job):
        self.noop.defer(**job)

    def bulk(self, number, size=5000):
        self.open()
        start = time.perf_counter()
        for first in range(0, number, size):
            self.noop.batch_defer(*[payload(n) for n in range(first, min(number, first + size))])
        seconds = time.perf_counter() - start
        self.close()
        return seconds

    def bulk_tenants(self, number, tenants):
        self.open()
        start = time.perf_counter()
        for n in range(number):  # batch_defer takes one lock for the whole batch
            self.noop.configure(lock=f"tenant-{n % tenants}").defer(**payload(n))
        seconds = time.perf_counter() - start
        self.close()
        return seconds

    def work(self):
        import uvloop

        async def run():
            connector = procrastinate.PsycopgConnector(conninfo=DSN, min_size=2, max_size=CONCURRENCY + 2)
            app, _ = application(connector)
            async with app.open_async():
                ready()
                await app.run_worker_async(queues=["bench"], concurrency=CONCURRENCY, wait=True)

        uvloop.run(run())


if __name__ == "__main__":
    main(Peer())
