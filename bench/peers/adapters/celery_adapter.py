"""Celery on Redis: prefork, acknowledged late, no results, no gossip."""

import os
import time

import redis
from adapter import REDIS, Adapter, handled, main, payload, ready
from celery import Celery
from celery.signals import worker_ready

URL = f"{REDIS}/1"
PROCESSES, PREFETCH = 2, 64
app = Celery("bench", broker=URL)
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    worker_prefetch_multiplier=PREFETCH,
    task_default_queue="bench",
    worker_send_task_events=False,
    broker_connection_retry_on_startup=True,
    worker_hijack_root_logger=False,
    worker_redirect_stdouts=False,
)


@app.task(name="noop")
def noop(seq, pad=None):
    handled(seq)


@worker_ready.connect
def _ready(**_):
    ready()


class Peer(Adapter):
    packages = ("celery", "kombu", "redis")
    settings = f"prefork -c {PROCESSES}, acks_late, prefetch_multiplier={PREFETCH}, ignore_result; no bulk call: a loop"
    client = None

    def setup(self):
        self.reset()

    def reset(self):
        redis.Redis.from_url(URL).flushdb()

    def open(self):
        self.connection = app.connection_for_write()
        self.producer = app.amqp.Producer(self.connection)

    def close(self):
        self.connection.release()

    def enqueue(self, job):
        noop.apply_async(kwargs=job, producer=self.producer)

    def bulk(self, number):
        self.open()
        start = time.perf_counter()
        for n in range(number):
            self.enqueue(payload(n))
        seconds = time.perf_counter() - start
        self.close()
        return seconds

    def pending(self):
        self.client = self.client or redis.Redis.from_url(URL)
        return self.client.llen("bench") + self.client.hlen("unacked")

    def work(self):
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "error"]
        app.worker_main(["worker", "-c", str(PROCESSES), *quiet, "-n", f"w{os.getpid()}@%h"])


if __name__ == "__main__":
    main(Peer())
