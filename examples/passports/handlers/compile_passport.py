"""COMPILE_PASSPORT: a sealed snapshot and published rules become a version of a passport."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import psycopg

from passports.canonical import canonical, digest, merkle_root
from passports.errors import PassportError
from passports.rules import evaluate

MOST_BYTES = 262_144


@dataclass(frozen=True)
class Issue:
    """What is compiled from a snapshot. The time of issue is part of the order: compiled again, it is the same."""

    passport_id: UUID
    rules_id: UUID
    build_id: str
    issued_at: datetime


def compile_version(
    conn: psycopg.Connection[Any], tenant: str | None, snapshot_id: UUID, issue: Issue
) -> tuple[UUID, bool]:
    """Return the version's id, and whether it is new: one snapshot, rules, build and time make one version."""
    facts = _sealed_facts(conn, tenant, snapshot_id)
    checks = evaluate(_published_rules(conn, tenant, issue.rules_id), [payload for _, payload in facts])
    named = {
        "tenant_id": tenant,
        "passport_id": str(issue.passport_id),
        "snapshot_id": str(snapshot_id),
        "rules_id": str(issue.rules_id),
        "build_id": issue.build_id,
        "issued_at": issue.issued_at.isoformat(),
    }
    payload = canonical({**named, "facts": [payload for _, payload in facts], "checks": checks})
    if len(payload) > MOST_BYTES:
        raise PassportError("PAYLOAD_TOO_LARGE", f"the passport has {len(payload):,} bytes, more than {MOST_BYTES:,}")
    payload_hash, proof_root = digest(payload), merkle_root(bytes(fact_hash) for fact_hash, _ in facts)
    receipt = digest(canonical({**named, "payload_hash": payload_hash.hex(), "proof_root": proof_root.hex()}))
    version_id = uuid5(NAMESPACE_URL, f"bpc:{receipt.hex()}")
    added = conn.execute(
        "insert into passports.passport_versions (tenant_id, passport_version_id, passport_id, snapshot_id, rules_id,"
        " build_id, issued_at, payload, payload_hash, proof_root_hash, receipt_hash)"
        " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) on conflict do nothing",
        [
            tenant,
            version_id,
            issue.passport_id,
            snapshot_id,
            issue.rules_id,
            issue.build_id,
            issue.issued_at,
            payload.decode(),
            payload_hash,
            proof_root,
            receipt,
        ],
    )
    return version_id, added.rowcount == 1


def _sealed_facts(conn: psycopg.Connection[Any], tenant: str | None, snapshot_id: UUID) -> list[Any]:
    found = conn.execute(
        "select status from passports.snapshots where tenant_id = %s and snapshot_id = %s", [tenant, snapshot_id]
    ).fetchone()
    if found != ("SEALED",):
        raise PassportError("SNAPSHOT_NOT_READY", f"snapshot {snapshot_id} is {found and found[0]}, not SEALED")
    return conn.execute(
        "select f.payload_hash, f.payload from passports.snapshot_facts s"
        " join passports.facts f using (tenant_id, fact_id) where s.tenant_id = %s and s.snapshot_id = %s"
        " order by f.fact_type, f.fact_key, f.payload_hash",
        [tenant, snapshot_id],
    ).fetchall()


def _published_rules(conn: psycopg.Connection[Any], tenant: str | None, rules_id: UUID) -> Any:
    found = conn.execute(
        "select status, package from passports.rule_packages where tenant_id = %s and rules_id = %s", [tenant, rules_id]
    ).fetchone()
    if found is None or found[0] != "PUBLISHED":
        raise PassportError("RULE_PKG_NOT_PUBLISHED", f"rules {rules_id} are {found and found[0]}, not PUBLISHED")
    return found[1]
