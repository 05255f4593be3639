"""Jobs that write a row and emit a message in one transaction, and the channels that carry the messages to the receiver
(tests/support/ledger_receiver.py), for tests that kill their workers. BROKEN names a mistake to be made on purpose."""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import time
from dataclasses import dataclass, replace
from typing import Any

from holdfast import CONTEXT, Context, Delivery, Holdfast, Retry, Snooze
from holdfast.model.outbox import DeliverySignature

hf = Holdfast()
AGAIN = Retry.fixed(0, max_attempts=1000)
PORT = int(os.environ["RECEIVER"])
BROKEN = os.environ.get("BROKEN", "")
NUMBER = "select last + 1 from public.streams where stream = %s for update"
COUNT = "update public.streams set last = %s where stream = %s"
ROW = "insert into public.rows (n) values (%s)"


@dataclass
class Order:
    n: int
    number: int = 0


def moment(n: int, attempt: int, place: str) -> float:
    """Return a delay long enough for a kill; the run's seed decides."""
    longest = 0.15 if place == "sent" else 0.05
    return random.Random(f"{os.environ['SEED']} {n} {attempt} {place}").uniform(0, longest)


def way(n: int) -> tuple[str, str | None]:
    """Return the channel, and the order, if any."""
    return "asking" if n % 2 else "blind", f"stream-{n % 20}" if n % 3 == 0 else None


# -- the jobs. An emitter in order holds the order's row, so that the numbers are those of the emits. A job whose
#    message was emitted before writes no row.


@hf.task(name="on_loop", retry=AGAIN)
async def on_loop(n: int, *, ctx: Context = CONTEXT) -> None:
    channel, stream = way(n)
    async with ctx.transaction() as conn:
        await asyncio.sleep(moment(n, ctx.attempt, "before"))
        number = 0
        if stream:
            (number,) = await (await conn.execute(NUMBER, [stream])).fetchone()
        if BROKEN == "beside":
            message = await hf.outbox.aemit(
                None, channel, Order(n, number), key=f"order-{n}", tenant=ctx.tenant, order=stream
            )
        else:
            message = await ctx.aemit(channel, Order(n, number), key=f"order-{n}", order=stream)
        await asyncio.sleep(moment(n, ctx.attempt, "after"))
        if not message.existing:
            await conn.execute(ROW, [n])
            if stream:
                await conn.execute(COUNT, [number, stream])


@hf.task(name="in_thread", retry=AGAIN)
def in_thread(n: int, *, ctx: Context = CONTEXT) -> None:
    channel, stream = way(n)
    with ctx.transaction() as conn:
        time.sleep(moment(n, ctx.attempt, "before"))
        number = conn.execute(NUMBER, [stream]).fetchone()[0] if stream else 0
        message = ctx.emit(channel, Order(n, number), key=f"order-{n}", order=stream)
        time.sleep(moment(n, ctx.attempt, "after"))
        if not message.existing:
            conn.execute(ROW, [n])
            if stream:
                conn.execute(COUNT, [number, stream])


# -- the channels


def facts(it: Delivery[Order]) -> dict[str, Any]:
    return {
        "key": it.idempotency_key,
        "n": it.payload.n,
        "channel": it.channel,
        "order": it.order,
        "number": it.payload.number,
        "attempt": it.attempt,
        "maybe_sent": it.maybe_sent,
        "pid": os.getpid(),
    }


@hf.channel("blind", retry=AGAIN)
async def blind(it: Delivery[Order]) -> None:
    """Send every message it is given."""
    await asyncio.sleep(moment(it.payload.n, it.attempt, "send"))
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    writer.write(json.dumps(facts(it)).encode() + b"\n")
    response = (await reader.readline()).strip()
    writer.close()
    if response == b"busy":
        raise Snooze(0.05)
    assert response == b"took", response
    await asyncio.sleep(moment(it.payload.n, it.attempt, "sent"))


@hf.channel("asking", retry=AGAIN)
def asking(it: Delivery[Order]) -> None:
    """Look the message up at the receiver if it may have been sent."""
    time.sleep(moment(it.payload.n, it.attempt, "send"))
    if it.maybe_sent and ask({"lookup": True, "key": it.idempotency_key}) == b"known":
        return
    response = ask(facts(it))
    if response == b"busy":
        raise Snooze(0.05)
    assert response == b"took", response
    time.sleep(moment(it.payload.n, it.attempt, "sent"))


def ask(question: dict[str, Any]) -> bytes:
    with socket.create_connection(("127.0.0.1", PORT)) as link, link.makefile("rb") as responses:
        link.sendall(json.dumps(question).encode() + b"\n")
        return responses.readline().strip()


# -- a job that emits before it has ended


def note(*words: object) -> None:
    """Write one line at once."""
    file = os.open(os.environ["RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, (" ".join(map(str, words)) + "\n").encode())
    os.close(file)


@hf.task(name="emits_and_hangs", retry=AGAIN)
async def emits_and_hangs(n: int, within: bool, *, ctx: Context = CONTEXT) -> None:
    """Emit in the first attempt, which is killed before it ends: in a transaction of its own, or inside the job's."""
    async with ctx.transaction():
        if within:
            emitted = await ctx.aemit("blind", Order(n), key=f"order-{n}")
        else:
            emitted = await hf.outbox.aemit(None, "blind", Order(n), key=f"order-{n}")
        note("emitted", ctx.attempt, emitted.id, emitted.existing)
        if ctx.attempt == 1:
            await asyncio.sleep(3600)


# -- a mistake of the library's, made here

_call = DeliverySignature.call


def _unflagged(self: DeliverySignature, job: Any) -> Any:
    args, named = _call(self, job)
    return args, {name: replace(value, maybe_sent=False) for name, value in named.items()}


if BROKEN == "unflagged":
    DeliverySignature.call = _unflagged  # type: ignore[method-assign]
