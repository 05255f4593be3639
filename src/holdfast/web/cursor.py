"""Encrypted list cursors: a page may end at another tenant's job, whose id would reveal when it was created.

Encryption with a synthetic IV: the tag is a keyed hash of the position and of the caller's tenant, and the position is
hidden by a keyed hash of the tag. The same position gives the same cursor, and no cursor opens for another tenant.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from hashlib import blake2b
from uuid import UUID

from holdfast.model.token import Caller

_BYTES = 16


def seal(key: bytes, caller: Caller, id_: str) -> str:
    """Return a cursor that stands for a position in the lists of this caller's tenant."""
    plain = UUID(id_).bytes
    tag = _tag(key, caller, plain)
    return base64.urlsafe_b64encode(tag + _hidden(key, tag, plain)).decode().rstrip("=")


def unseal(key: bytes, caller: Caller, cursor: str) -> str | None:
    """Return the position, or None if the cursor is not one of this caller's tenant."""
    try:
        data = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    except (binascii.Error, ValueError):
        return None
    tag, hidden = data[:_BYTES], data[_BYTES:]
    if len(hidden) != _BYTES:
        return None
    plain = _hidden(key, tag, hidden)
    return str(UUID(bytes=plain)) if hmac.compare_digest(tag, _tag(key, caller, plain)) else None


def _tag(key: bytes, caller: Caller, plain: bytes) -> bytes:
    whose = b"*" if caller.tenant is None else b"=" + caller.tenant.encode()
    return blake2b(plain + whose, key=key, digest_size=_BYTES, person=b"cursor tag").digest()


def _hidden(key: bytes, tag: bytes, text: bytes) -> bytes:
    mask = blake2b(tag, key=key, digest_size=_BYTES, person=b"cursor mask").digest()
    return bytes(a ^ b for a, b in zip(text, mask, strict=True))
