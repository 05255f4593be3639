"""GENERATE_QR: the label of a signed version, in the format BPC-QR-1."""

from __future__ import annotations

import io
from typing import Any
from uuid import UUID

import psycopg
import segno

from passports.canonical import base32_no_pad
from passports.errors import PassportError


def draw_version(conn: psycopg.Connection[Any], tenant: str | None, version_id: UUID) -> bool:
    """Draw the version's code; return False if it had one."""
    found = conn.execute(
        "select payload_hash, proof_root_hash, receipt_hash from passports.passport_versions"
        " where tenant_id = %s and passport_version_id = %s and status = 'SIGNED'",
        [tenant, version_id],
    ).fetchone()
    if found is None:
        raise PassportError("VALIDATION_ERROR", f"there is no signed passport version {version_id} of this tenant")
    payload = qr_payload(version_id, *map(bytes, found))
    drawn = conn.execute(
        "update passports.passport_versions set qr_payload = %s, qr_png = %s"
        " where tenant_id = %s and passport_version_id = %s and qr_png is null",
        [payload, qr_png(payload), tenant, version_id],
    )
    return drawn.rowcount == 1


def qr_payload(version_id: UUID, payload_hash: bytes, proof_root: bytes, receipt_hash: bytes) -> str:
    ph, pr, rh = map(base32_no_pad, (payload_hash, proof_root, receipt_hash))
    return f"BPC1|pv={version_id}|ph={ph}|pr={pr}|rh={rh}"


def qr_png(payload: str) -> bytes:
    """Return a PNG: level M, ten pixels a module, no border."""
    picture = io.BytesIO()
    segno.make(payload, error="m", boost_error=False, micro=False).save(picture, kind="png", scale=10, border=0)
    return picture.getvalue()
