"""What routes return: how much a request changed."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from holdfast.store.call import Call
from holdfast.web.context import RequestContext


@dataclass(frozen=True, slots=True)
class ChangeCount:
    """How many rows were changed."""

    changed: int


class ChangeResult(msgspec.Struct, omit_defaults=True):
    """changed is 0 if nothing changed. warning: the key is unknown."""

    changed: int
    warning: str | None = None


async def changed(ctx: RequestContext, call: Call[bool]) -> ChangeCount:
    """Run a call that returns whether it changed something."""
    was = await ctx.run(call)
    return ChangeCount(int(was))
