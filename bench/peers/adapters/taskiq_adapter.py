"""taskiq on a Redis stream, acknowledged; bulk is a gather of single calls."""

import asyncio
import time

import redis
from adapter import REDIS, Adapter, handled, main, payload, ready
from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker

URL = f"{REDIS}/6"
CONCURRENCY = 100
broker = RedisStreamBroker(url=URL, queue_name="bench", consumer_id="0")


@broker.task(task_name="noop")
async def noop(seq: int, pad: str = ""):
    handled(seq)


class Peer(Adapter):
    packages = ("taskiq", "taskiq-redis", "redis", "uvloop")
    settings = f"RedisStreamBroker, max_async_tasks={CONCURRENCY}, uvloop; no bulk call: gather of 200"
    client = None

    def setup(self):
        self.reset()

    def reset(self):
        redis.Redis.from_url(URL).flushdb()

    async def open(self):
        await broker.startup()

    async def close(self):
        await broker.shutdown()

    async def enqueue(self, job):
        await noop.kiq(**job)

    async def bulk(self, number, size=200):
        await self.open()
        start = time.perf_counter()
        for first in range(0, number, size):
            await asyncio.gather(*[self.enqueue(payload(n)) for n in range(first, min(number, first + size))])
        seconds = time.perf_counter() - start
        await self.close()
        return seconds

    def pending(self):
        self.client = self.client or redis.Redis.from_url(URL)
        try:
            groups = self.client.xinfo_groups("bench")
        except redis.ResponseError:
            return 0
        return sum(int(each["pending"]) + int(each["lag"] or 0) for each in groups)

    def work(self):
        import uvloop

        async def run():
            broker.is_worker_process = True
            await broker.startup()
            ready()
            receiver = Receiver(broker, max_async_tasks=CONCURRENCY, run_startup=False)
            await receiver.listen(asyncio.Event())

        uvloop.run(run())


if __name__ == "__main__":
    main(Peer())
