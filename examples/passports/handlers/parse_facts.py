"""PARSE_FACTS: a bill of materials, in CSV or JSON, becomes facts of the snapshot that it is for."""

from __future__ import annotations

import csv
import io
import json
from typing import Any
from uuid import UUID

import psycopg

from passports.canonical import canonical, digest
from passports.errors import PassportError

SCHEMA_VERSION = "bom-1"
NUMBERS = ("mass_kg", "recycled_share")
COLUMNS = ("component", "material", *NUMBERS)


def store_facts(conn: psycopg.Connection[Any], tenant: str | None, document_version_id: UUID) -> tuple[UUID, int]:
    """Return the snapshot, and how many facts it has from this document. A known fact is not written again."""
    found = conn.execute(
        "select snapshot_id, format, content from passports.document_versions"
        " where tenant_id = %s and document_version_id = %s",
        [tenant, document_version_id],
    ).fetchone()
    if found is None:
        raise PassportError("VALIDATION_ERROR", f"there is no document version {document_version_id} of this tenant")
    snapshot_id, kind, content = found
    rows = parse_bom(kind, content)
    for row in rows:
        _store(conn, tenant, snapshot_id, row)
    return snapshot_id, len(rows)


def parse_bom(kind: str, content: str) -> list[dict[str, Any]]:
    """Return the rows of a bill of materials; numbers are numbers in every format."""
    try:
        given = json.loads(content) if kind == "json" else list(csv.DictReader(io.StringIO(content), strict=True))
        rows = [{name: row[name] for name in COLUMNS} for row in given]
        return [row | {name: float(row[name]) for name in NUMBERS} for row in rows]
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise PassportError("VALIDATION_ERROR", f"this is no bill of materials: {error!r}") from error


def _store(conn: psycopg.Connection[Any], tenant: str | None, snapshot_id: UUID, row: dict[str, Any]) -> None:
    payload = canonical(row)
    key = [tenant, "component", row["component"], SCHEMA_VERSION, digest(payload)]
    conn.execute(
        "insert into passports.facts (tenant_id, fact_type, fact_key, schema_version, payload_hash, payload)"
        " values (%s, %s, %s, %s, %s, %s) on conflict do nothing",
        [*key, payload.decode()],
    )
    conn.execute(
        "insert into passports.snapshot_facts (tenant_id, snapshot_id, fact_id)"
        " select tenant_id, %s, fact_id from passports.facts where (tenant_id, fact_type, fact_key, schema_version,"
        " payload_hash) = (%s, %s, %s, %s, %s) on conflict do nothing",
        [snapshot_id, *key],
    )
