"""Holdfast: every setting at its default. Jobs of tenants are under `Limit("k:{tenant}", concurrency=10)`."""

import time

from adapter import RUNNING, PostgresAdapter, database, handled, main, payload, ready

from holdfast import Holdfast, Limit
from holdfast.bench.harness import TABLES

NOBODY = "00000000-0000-7000-8000-000000000000"


def application():
    hf = Holdfast(database("peer_holdfast"))

    @hf.task(name="noop")
    async def noop(seq: int, pad: str) -> None:
        handled(seq)

    @hf.task(name="limited", limits=[Limit("k:{tenant}", concurrency=RUNNING)])
    async def limited(seq: int, pad: str) -> None:
        handled(seq)

    return hf, noop, limited


class Peer(PostgresAdapter):
    database = "peer_holdfast"
    packages = ("holdfast", "psycopg", "uvloop", "msgspec")
    settings = "defaults; enqueue, enqueue_many of 10,000; async handler; history kept"
    pending_sql = "select (select count(*) from holdfast.live) + (select count(*) from holdfast.later)"
    reset_sql = f"set search_path = holdfast; truncate {TABLES}"

    def setup(self):
        self.execute(self.database, "drop schema if exists holdfast cascade")
        hf, *_ = application()
        hf.migrate()
        hf.close()

    def open(self):
        self.hf, self.noop, self.limited = application()
        self.hf.jobs.get(NOBODY)  # connects

    def close(self):
        self.hf.close()

    def enqueue(self, job):
        self.noop.enqueue(job["seq"], job["pad"])

    def bulk(self, number, size=10_000):
        self.open()
        start = time.perf_counter()
        for first in range(0, number, size):
            self.noop.enqueue_many([payload(n) for n in range(first, min(number, first + size))])
        seconds = time.perf_counter() - start
        self.close()
        return seconds

    def bulk_tenants(self, number, tenants, size=1000):
        self.open()
        start = time.perf_counter()
        for first in range(0, number, size):  # mixed, as with the other peers
            for tenant in range(tenants):
                jobs = [payload(n) for n in range(first + tenant, min(number, first + size), tenants)]
                self.limited.using(tenant=f"tenant-{tenant}").enqueue_many(jobs)
        seconds = time.perf_counter() - start
        self.close()
        return seconds

    def work(self):
        import uvloop

        from holdfast.worker import Worker, keep_what_is_loaded

        hf, *_ = application()
        keep_what_is_loaded()  # as `holdfast worker` does
        ready()
        uvloop.run(Worker(hf).run(handle_signals=True))


if __name__ == "__main__":
    main(Peer())
