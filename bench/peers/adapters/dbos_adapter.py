"""DBOS: workflows on a queue; bulk is many single inserts in one transaction."""

import os
import time

from adapter import PostgresAdapter, database, handled, main, payload, ready
from dbos import DBOS, DBOSClient

DSN = database("peer_dbos")
CONCURRENCY, POLL = 200, 0.1
OPTIONS = {"workflow_name": "noop", "queue_name": "bench", "app_version": "1"}


def launch():
    DBOS(
        config={
            "name": "bench",
            "system_database_url": DSN,
            "log_level": "ERROR",
            "application_version": "1",
            "executor_id": f"e{os.getpid()}",
        }
    )

    @DBOS.workflow(name="noop")
    def noop(seq, pad=None):
        handled(seq)

    DBOS.launch()
    DBOS.register_queue("bench", worker_concurrency=CONCURRENCY, polling_interval_sec=POLL)


class Peer(PostgresAdapter):
    database = "peer_dbos"
    packages = ("dbos", "sqlalchemy", "psycopg")
    settings = (
        f"worker_concurrency={CONCURRENCY}, polling_interval_sec={POLL}; no bulk call: inserts in transactions of 1,000"
    )
    pending_sql = "select count(*) from dbos.workflow_status where status in ('ENQUEUED', 'PENDING')"
    reset_sql = "truncate dbos.workflow_status cascade"

    def setup(self):
        self.execute(self.database, "drop schema if exists dbos cascade")
        launch()
        time.sleep(1)
        DBOS.destroy()

    def open(self):
        self.client = DBOSClient(system_database_url=DSN)

    def close(self):
        self.client.destroy()

    def enqueue(self, job):
        self.client.enqueue(OPTIONS, job["seq"], job["pad"])

    def bulk(self, number, size=1000):
        import sqlalchemy

        self.open()
        engine = sqlalchemy.create_engine(DSN.replace("postgresql:", "postgresql+psycopg:"))
        with engine.connect() as conn:
            conn.execute(sqlalchemy.text("select 1"))
            conn.commit()
            start = time.perf_counter()
            for first in range(0, number, size):
                with conn.begin():
                    for n in range(first, min(number, first + size)):
                        job = payload(n)
                        self.client.enqueue_in_transaction(conn, OPTIONS, job["seq"], job["pad"])
            seconds = time.perf_counter() - start
        self.close()
        return seconds

    def work(self):
        ready()
        launch()
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main(Peer())
