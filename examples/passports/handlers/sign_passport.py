"""SIGN_PASSPORT: Ed25519 over the receipt hash. It is deterministic: signing again gives the same signature."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

import psycopg
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from passports.errors import PassportError


def sign_version(conn: psycopg.Connection[Any], tenant: str | None, version_id: UUID) -> tuple[str, bool]:
    """Return the id of the key, and whether the version was signed now and not before."""
    found = conn.execute(
        "select receipt_hash from passports.passport_versions where tenant_id = %s and passport_version_id = %s",
        [tenant, version_id],
    ).fetchone()
    if found is None:
        raise PassportError("VALIDATION_ERROR", f"there is no passport version {version_id} of this tenant")
    key_id, key = signing_key()
    signed = conn.execute(
        "update passports.passport_versions set status = 'SIGNED', key_id = %s, signature = %s"
        " where tenant_id = %s and passport_version_id = %s and status = 'COMPILED'",
        [key_id, key.sign(bytes(found[0])), tenant, version_id],
    )
    return key_id, signed.rowcount == 1


def signing_key() -> tuple[str, Ed25519PrivateKey]:
    """Return the name of the key of BPC_SIGNING_KEY (32 bytes in hex), and the key."""
    try:
        key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(os.environ["BPC_SIGNING_KEY"]))
    except (KeyError, ValueError):
        raise PassportError("SIGNING_KEY_MISSING", "BPC_SIGNING_KEY must be 64 hexadecimal digits") from None
    return os.environ.get("BPC_SIGNING_KEY_ID", "dev-key-1"), key
