"""The demo's application: tasks that imitate real ones by sleeping."""

from __future__ import annotations

import asyncio
import time

from holdfast import CONTEXT, Context, Fail, Holdfast, Retry

hf = Holdfast()


@hf.task(name="demo.send_email")
async def send_email(number: int) -> None:
    """Wait for the network, on the event loop."""
    await asyncio.sleep(0.005 + number % 7 * 0.004)


@hf.task(name="demo.resize_image")
def resize_image(number: int) -> None:
    """Block, and so run in a thread."""
    time.sleep(0.005 + number % 5 * 0.003)


@hf.task(name="demo.sync_contact", retry=Retry.fixed(0.2, max_attempts=4))
async def sync_contact(number: int, *, ctx: Context = CONTEXT) -> None:
    """Fail once or twice for some contacts, and be retried soon."""
    await asyncio.sleep(0.004)
    if ctx.attempt <= number % 3:
        raise ConnectionError(f"the address book was busy (attempt {ctx.attempt})")


@hf.task(name="demo.send_reminder")
async def send_reminder(number: int) -> None:
    """Run after a delay."""
    await asyncio.sleep(0.003)


@hf.task(name="demo.charge_card")
async def charge_card(number: int, expired: bool) -> str:
    """Fail without retries for an expired card."""
    await asyncio.sleep(0.005)
    if expired:
        raise Fail("the card has expired", code="CARD_EXPIRED")
    return f"receipt-{number}"


@hf.task(name="demo.call_partner", retry=Retry.fixed(0.3, max_attempts=3))
async def call_partner(number: int, moved: bool) -> None:
    """Time out for a partner that has moved, until the attempts are used up."""
    await asyncio.sleep(0.005)
    if moved:
        raise TimeoutError("the partner did not respond")
