"""Calls after a restore."""

from __future__ import annotations

from datetime import datetime

from holdfast.model.restore import Restored
from holdfast.store.call import Call


class RestoreCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def after_restore(
        self, id_: str, *, plan: bool, by: str | None = None, reason: str | None = None, before: datetime | None = None
    ) -> Call[Restored]:
        """Put a bounded part in order, under the id of an action, so that the call can be repeated; or plan it."""
        return Call(
            "SELECT before, newest, jobs, workers, sleepers, messages, deliveries, tokens, actions, examples::text[], "
            f"more FROM {self.schema}.after_restore(%s, %s::uuid, %s, %s, %s)",
            (plan, id_, by, reason, before),
            lambda rows: Restored(*rows[0]),
        )
