"""Sessions: a signed cookie that names a token by its digest, and the CSRF tokens of its forms.

The token is checked with each request as for calls of the API, so a session ends when its token is revoked or expires.
The digest is what the database stores; nobody can make a token from it.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
import time
from dataclasses import dataclass
from hashlib import blake2b, sha256

LIFETIME = 12 * 3600  # seconds
_NONCE = 16
_STAMP = 8
_DIGEST = sha256().digest_size
_MAC = 32


@dataclass(frozen=True, slots=True)
class BrowserSession:
    """A signed-in browser: the digest of its token, when the session ends (Unix time), and its random number."""

    token: bytes
    ends: int
    nonce: bytes


def begin(token: bytes, seconds_left: float | None) -> BrowserSession:
    """Return a new session, which ends no later than its token."""
    left = LIFETIME if seconds_left is None else min(LIFETIME, seconds_left)
    return BrowserSession(token, int(time.time() + left), new_nonce())


def new_nonce() -> bytes:
    return secrets.token_bytes(_NONCE)


def seal(key: bytes, session: BrowserSession) -> str:
    """Return the value of a session's cookie."""
    plain = session.ends.to_bytes(_STAMP) + session.nonce + session.token
    return encode(plain + _mac(key, b"session", plain))


def unseal(key: bytes, cookie: str) -> BrowserSession | None:
    """Return the session of a cookie, or None if it is not ours or has ended."""
    data = decode(cookie)
    if len(data) != _STAMP + _NONCE + _DIGEST + _MAC:
        return None
    plain, mac = data[:-_MAC], data[-_MAC:]
    if not hmac.compare_digest(mac, _mac(key, b"session", plain)):
        return None
    ends = int.from_bytes(plain[:_STAMP])
    if ends <= time.time():
        return None
    return BrowserSession(plain[_STAMP + _NONCE :], ends, plain[_STAMP : _STAMP + _NONCE])


def csrf(key: bytes, nonce: bytes) -> str:
    """Return the token of the forms of one browser."""
    return encode(_mac(key, b"csrf", nonce))


def is_csrf(key: bytes, nonce: bytes, given: str) -> bool:
    """Return whether a form has its browser's token."""
    return hmac.compare_digest(csrf(key, nonce).encode(), given.encode("utf-8", "replace"))


def _mac(key: bytes, use: bytes, data: bytes) -> bytes:
    return blake2b(data, key=key, digest_size=_MAC, person=use).digest()


def encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def decode(text: str) -> bytes:
    """Return encoded bytes; none if the text was not encoded here."""
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return b""
