"""Dramatiq on Redis: one process with 8 threads, its default middleware without Prometheus."""

import os
import signal
import time

from adapter import REDIS, Adapter, handled, main, payload, ready

os.environ.setdefault("dramatiq_queue_prefetch", "64")
import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AgeLimit, Callbacks, Pipelines, Retries, ShutdownNotifications, TimeLimit

THREADS = 8
LAYERS = [AgeLimit(), TimeLimit(), ShutdownNotifications(), Callbacks(), Pipelines(), Retries()]
broker = RedisBroker(url=f"{REDIS}/2", middleware=LAYERS)
dramatiq.set_broker(broker)


@dramatiq.actor(queue_name="bench")
def noop(seq, pad=None):
    handled(seq)


class Peer(Adapter):
    packages = ("dramatiq", "redis")
    settings = f"{THREADS} threads, queue_prefetch=64; no bulk call: a loop"

    def setup(self):
        self.reset()

    def reset(self):
        broker.client.flushdb()

    def enqueue(self, job):
        noop.send(**job)

    def bulk(self, number):
        broker.client.ping()  # connects
        start = time.perf_counter()
        for n in range(number):
            self.enqueue(payload(n))
        return time.perf_counter() - start

    def pending(self):
        return broker.client.hlen("dramatiq:bench.msgs")

    def work(self):
        worker = dramatiq.Worker(broker, worker_threads=THREADS)
        ready()
        worker.start()
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        while True:
            time.sleep(1)


if __name__ == "__main__":
    main(Peer())
