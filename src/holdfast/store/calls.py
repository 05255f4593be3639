"""Every call of one schema, by noun: `calls.jobs.get(...)`, `calls.dead.retry(...)`. See call.py."""

from __future__ import annotations

from typing import get_type_hints

from holdfast.store.actions import ActionCalls
from holdfast.store.batches import BatchCalls
from holdfast.store.call import Call
from holdfast.store.dead import DeadCalls
from holdfast.store.errors import ErrorCalls
from holdfast.store.figures import FigureCalls
from holdfast.store.jobs import JobCalls
from holdfast.store.limits import LimitCalls
from holdfast.store.migrations import SchemaState
from holdfast.store.outbox import OutboxCalls
from holdfast.store.plan import FOUND
from holdfast.store.queues import QueueCalls
from holdfast.store.restore import RestoreCalls
from holdfast.store.schedules import ScheduleCalls
from holdfast.store.steps import StepCalls
from holdfast.store.tokens import TokenCalls
from holdfast.store.webhooks import WebhookCalls
from holdfast.store.workers import WorkerCalls


class Calls:
    """The calls, for one schema; made once for an application. A table of contents: one attribute for each noun."""

    jobs: JobCalls
    queues: QueueCalls
    batches: BatchCalls
    steps: StepCalls
    dead: DeadCalls
    errors: ErrorCalls
    limits: LimitCalls
    schedules: ScheduleCalls
    outbox: OutboxCalls
    webhooks: WebhookCalls
    tokens: TokenCalls
    workers: WorkerCalls
    figures: FigureCalls
    actions: ActionCalls
    restore: RestoreCalls

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self.channel = f"{schema}_wake"
        for noun, kind in get_type_hints(Calls).items():
            setattr(self, noun, kind(schema))

    def version(self) -> Call[SchemaState]:
        """Return the schema's version, and the oldest that it works with."""
        return Call(FOUND.format(self.schema), (), lambda rows: SchemaState(*rows[0]))
