"""Read by mypy, never run: a line that ends in `# error: CODE` must be refused with that code, and no other line."""

from __future__ import annotations

from typing import assert_type

from holdfast import CONTEXT, Context, Handle, Holdfast, Retry

hf = Holdfast("postgresql://nowhere/none")


@hf.task(retry=Retry.fixed(1))
async def send(to: str, copies: int = 1, *, ctx: Context = CONTEXT) -> str:
    return to


@hf.task()
def in_thread(to: str) -> int:
    return 1


@hf.task()
async def context_first(ctx: Context, number: int) -> None: ...


assert_type(send.enqueue("a"), Handle[str])
assert_type(send.enqueue("a", copies=2), Handle[str])
assert_type(in_thread.using(delay=3, tenant="acme").enqueue(to="a"), Handle[int])
assert_type(send.enqueue_many([("a",), {"to": "b"}]), list[str])
context_first.enqueue(3)

send.enqueue(1)  # error: arg-type
send.enqueue("a", copys=2)  # error: call-arg
in_thread.enqueue()  # error: call-arg
context_first.enqueue("x")  # error: arg-type
context_first.enqueue(CONTEXT, 3)  # error: call-arg, arg-type
send.using(dely=3)  # error: call-arg
hf.task(retry="often")  # error: arg-type
