"""The worker of the passport compiler: five types of job, each with a handler module of its own.

A job's rows, its audit event, the webhooks about it and the next job are one transaction, which also ends the
job. A worker that dies at any moment leaves either all of them or none, and another starts over.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb

from holdfast import CONTEXT, Context, Event, Handle, Holdfast
from passports.errors import PERMANENT, RETRYABLE
from passports.handlers.compile_passport import Issue, compile_version
from passports.handlers.generate_qr import draw_version
from passports.handlers.parse_facts import store_facts
from passports.handlers.sign_passport import sign_version
from passports.settings import backoff, holdfast_settings

HIGH, NORMAL, LOW = 1, 2, 3  # 0 is for maintenance of the system

hf = Holdfast(**holdfast_settings(os.environ))
# As the document lists them: these errors are retried, these are not, and unlisted ones are not either.
retry = backoff(os.environ).on(retry=RETRYABLE, fail=PERMANENT)
# DELIVER_WEBHOOK is Holdfast's own. Every failed delivery is retried.
hf.webhooks.retry = backoff(os.environ)


@hf.task(name="PARSE_FACTS", priority=NORMAL, retry=retry)
def parse_facts(document_version_id: UUID, issue: Issue | None = None, *, ctx: Context = CONTEXT) -> None:
    """Parse a document. With an issue, the snapshot is complete after it, and is sealed and compiled."""
    with ctx.transaction() as conn:
        snapshot_id, facts = store_facts(conn, ctx.tenant, document_version_id)
        record_event(conn, ctx, "FACTS_PARSED", "DocumentVersion", document_version_id, {"facts": facts})
        if issue is not None:
            seal(conn, ctx.tenant, snapshot_id)
            compile_passport.using(tenant=ctx.tenant, conn=conn).enqueue(snapshot_id, issue)


@hf.task(name="COMPILE_PASSPORT", priority=HIGH, retry=retry)
def compile_passport(snapshot_id: UUID, issue: Issue, *, ctx: Context = CONTEXT) -> None:
    with ctx.transaction() as conn:
        version_id, new = compile_version(conn, ctx.tenant, snapshot_id, issue)
        if new:
            compiled = {"passport_version_id": str(version_id)}
            record_event(conn, ctx, "PASSPORT_COMPILED", "PassportVersion", version_id, compiled)
            sign_passport.using(tenant=ctx.tenant, conn=conn).enqueue(version_id)


@hf.task(name="SIGN_PASSPORT", priority=HIGH, retry=retry)
def sign_passport(passport_version_id: UUID, *, ctx: Context = CONTEXT) -> None:
    with ctx.transaction() as conn:
        key_id, new = sign_version(conn, ctx.tenant, passport_version_id)
        if new:
            signed = {"passport_version_id": str(passport_version_id), "key_id": key_id}
            record_event(conn, ctx, "PASSPORT_SIGNED", "PassportVersion", passport_version_id, signed)
            generate_qr.using(tenant=ctx.tenant, conn=conn).enqueue(passport_version_id)


@hf.task(name="GENERATE_QR", priority=NORMAL, retry=retry)
def generate_qr(passport_version_id: UUID, *, ctx: Context = CONTEXT) -> None:
    with ctx.transaction() as conn:
        if draw_version(conn, ctx.tenant, passport_version_id):
            drawn = {"passport_version_id": str(passport_version_id)}
            record_event(conn, ctx, "QR_GENERATED", "PassportVersion", passport_version_id, drawn)


def record_event(
    conn: psycopg.Connection[Any], ctx: Context, event_type: str, kind: str, about: UUID, payload: dict[str, Any]
) -> None:
    """Append an event to the audit log, and publish it to the tenant's endpoints."""
    event: Any = conn.execute(
        "insert into passports.events (tenant_id, event_type, aggregate_type, aggregate_id, payload)"
        " values (%s, %s, %s, %s, %s)"
        """ returning event_id::text, to_char(occurred_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')""",
        [ctx.tenant, event_type, kind, about, Jsonb(payload)],
    ).fetchone()
    body = {
        "event_id": event[0],
        "event_type": event_type,
        "aggregate_type": kind,
        "aggregate_id": str(about),
        "occurred_at": event[1],
        "payload": payload,
    }
    hf.webhooks.publish(conn, Event(event_type, body, tenant=ctx.tenant, id=event[0]), priority=LOW)


def seal(conn: psycopg.Connection[Any], tenant: str | None, snapshot_id: UUID) -> None:
    conn.execute(
        "update passports.snapshots set status = 'SEALED', sealed_at = now()"
        " where tenant_id = %s and snapshot_id = %s and status = 'BUILDING'",
        [tenant, snapshot_id],
    )


def submit(
    conn: psycopg.Connection[Any], tenant: str, kind: str, content: str, issue: Issue | None = None
) -> tuple[UUID, Handle[None]]:
    """Store a bill of materials, and with an issue order the passport. Return the snapshot and the first job."""
    made: Any = conn.execute(
        "with made as (insert into passports.snapshots (tenant_id) values (%s) returning tenant_id, snapshot_id)"
        " insert into passports.document_versions (tenant_id, snapshot_id, format, content)"
        " select tenant_id, snapshot_id, %s, %s from made returning snapshot_id, document_version_id",
        [tenant, kind, content],
    ).fetchone()
    return made[0], parse_facts.using(tenant=tenant, conn=conn).enqueue(made[1], issue)
