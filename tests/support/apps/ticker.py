"""A schedule that comes due each second, for workers in the tests that die in the middle of it."""

from __future__ import annotations

from holdfast import Cron, Holdfast

hf = Holdfast()


@hf.task(name="tick")
async def tick() -> None: ...


tick.schedule("every second", Cron("* * * * * *", zone="Europe/Berlin", missed="all"))
