"""Sign webhooks, and verify their signatures. Standard library only: this file may be copied elsewhere.

Each request carries two signatures, and a receiver may verify either:

- `X-<Prefix>-Signature: sha256=<hex>`, an HMAC of the body alone, keyed with the secret's text. It has no timestamp, so
  a recorded request can be replayed.
- Standard Webhooks: `webhook-id`, `webhook-timestamp` and `webhook-signature: v1,<base64>`, an HMAC of
  `id.timestamp.body`. The key is the base64 after `whsec_`, or the whole text of a secret without that prefix. A
  receiver detects an old request by its timestamp, and a repeated one by its id.

While a secret is rotated, several are valid. `webhook-signature` carries a signature for each. Receivers compare the
other header as a whole, so it has only the signature of the first (newest) secret; `X-<Prefix>-Signature-Previous` has
the rest.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
import secrets as randomness
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_BEGINS = "whsec_"
_SHORTEST = 16
TOLERANCE = 300.0
_PREFIX = re.compile(r"[A-Za-z0-9-]{1,40}")
_VISIBLE = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?")
_SECONDS = re.compile(r"[0-9]{1,12}")
_MOST_SIGNATURES = 20
_TRIO = ("webhook-id", "webhook-timestamp", "webhook-signature")

Text = str | bytes
Headers = Mapping[str, str] | Iterable[tuple[Text, Text]]


class SignatureRefused(ValueError):
    """The request was not signed with a known secret, or not recently.

    `reason` is one word: missing, malformed, old, early or mismatch.
    """

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Verified:
    """What the signature covers. The headers with the event type and the delivery id are not signed.

    `id` and `timestamp` are None if the request had only `X-<Prefix>-Signature`; `secret` is the index of the matching
    secret.
    """

    scheme: str
    secret: int
    id: str | None = None
    timestamp: int | None = None


def new_secret() -> str:
    """Return a secret of 256 random bits, in the form of Standard Webhooks."""
    return _BEGINS + base64.b64encode(randomness.token_bytes(32)).decode()


def check_secret(secret: str) -> None:
    """Raise ValueError unless this text can sign by both schemes and is long enough."""
    if not secret.strip():
        raise ValueError("a webhook's secret must be a non-empty string")
    _standard_key(secret)
    if len(secret.strip().removeprefix(_BEGINS)) < _SHORTEST:
        raise ValueError(
            f"a webhook's secret has at least {_SHORTEST} characters, not counting whsec_: a short one can be guessed"
        )


def sign(
    body: bytes,
    secrets: str | Sequence[str],
    message_id: str,
    delivery_id: str,
    event_type: str,
    timestamp: float,
    prefix: str = "Holdfast",
) -> dict[str, str]:
    """Return the headers for this body, signed with each secret; the newest secret comes first."""
    keys = _listed(secrets)
    _check_prefix(prefix)
    for what, value in (("id", message_id), ("delivery id", delivery_id), ("event type", event_type)):
        if not _VISIBLE.fullmatch(value):
            raise ValueError(f"a webhook's {what} must be printable ASCII to be sent as a header, got {value!r}")
    if "." in message_id:
        raise ValueError(f"a webhook's id must have no full stop, which separates the signed parts, got {message_id!r}")
    plain, stamp = [_plain_signature(secret, body) for secret in keys], str(int(timestamp))
    headers = {
        f"X-{prefix}-Signature": plain[0],
        f"X-{prefix}-Event-Type": event_type,
        f"X-{prefix}-Delivery-Id": delivery_id,
        "webhook-id": message_id,
        "webhook-timestamp": stamp,
        "webhook-signature": " ".join(_standard_signature(s, message_id, stamp, body) for s in keys),
    }
    if len(plain) > 1:
        headers[f"X-{prefix}-Signature-Previous"] = ", ".join(plain[1:])
    return headers


def verify(
    body: bytes,
    headers: Headers,
    secrets: str | Sequence[str],
    *,
    tolerance: float = TOLERANCE,
    prefix: str | None = None,
    now: float | None = None,
) -> Verified:
    """Verify a request as received; raise SignatureRefused unless it was signed with one of the secrets.

    `body` is the raw bytes, before any parsing. `headers` is a mapping or pairs, names in any case. If a header of
    Standard Webhooks is present, that scheme decides, and the timestamp may be off by `tolerance` seconds. Otherwise
    `X-<Prefix>-Signature` is accepted only if you name the `prefix`. It has no timestamp, so a recorded request can be
    replayed: store the delivery ids and refuse repeated ones.
    """
    if not isinstance(body, bytes | bytearray | memoryview):
        raise TypeError(f"body must be the bytes as received, not {type(body).__name__}: parsing may change them")
    keys, found = _listed(secrets), _by_name(headers)
    if any(name in found for name in _TRIO):
        return _verify_standard(bytes(body), found, keys, tolerance, time.time() if now is None else now)
    if prefix is not None:
        _check_prefix(prefix)
        return _verify_plain(bytes(body), found, keys, prefix.lower())
    raise SignatureRefused("missing", "the request has no webhook-signature header" + _hint(found))


def _verify_standard(
    body: bytes, found: Mapping[str, str], keys: Sequence[str], tolerance: float, now: float
) -> Verified:
    for name in _TRIO:
        if not found.get(name):
            raise SignatureRefused("missing", f"the request has no {name} header")
    message, stamp, given = (found[name] for name in _TRIO)
    if "." in message or not _VISIBLE.fullmatch(message):
        raise SignatureRefused("malformed", f"webhook-id has characters that no id has: {message[:100]!r}")
    if not _SECONDS.fullmatch(stamp):
        raise SignatureRefused("malformed", f"webhook-timestamp is not a number of seconds: {stamp[:100]!r}")
    timestamp = int(stamp)
    # Compare the exact text: decoding base64 would accept several spellings of a signature.
    expected = [_standard_signature(secret, message, stamp, body) for secret in keys]
    matching = _matching(expected, given.split(" "))
    if not now - tolerance <= timestamp <= now + tolerance:
        reason, word = ("old", "old") if timestamp < now else ("early", "far in the future")
        raise SignatureRefused(
            reason,
            f"the request is too {word}: its timestamp is {timestamp - now:+.0f} s from now, {tolerance:g} allowed",
        )
    return Verified("standard", matching, message, timestamp)


def _verify_plain(body: bytes, found: Mapping[str, str], keys: Sequence[str], prefix: str) -> Verified:
    name = f"x-{prefix}-signature"
    given = [found.get(name, ""), *found.get(f"{name}-previous", "").split(",")]
    if not any(given):
        raise SignatureRefused("missing", f"the request has neither webhook-signature nor {name}")
    return Verified("plain", _matching([_plain_signature(s, body) for s in keys], [each.strip() for each in given]))


def _matching(expected: Sequence[str], given: Sequence[str]) -> int:
    """Return the index of the first expected signature that was given; compare all, in constant time each."""
    if len(given) > _MOST_SIGNATURES:
        raise SignatureRefused("malformed", f"the request has {len(given)} signatures, {_MOST_SIGNATURES} allowed")
    texts = [each.encode("utf-8", "backslashreplace") for each in given]
    matches = [sum(hmac.compare_digest(want.encode(), text) for text in texts) > 0 for want in expected]
    if True not in matches:
        raise SignatureRefused("mismatch", "no signature matches: the secret is another one, or the body was changed")
    return matches.index(True)


def _plain_signature(secret: str, body: bytes) -> str:
    return "sha256=" + hmac.digest(secret.encode(), body, "sha256").hex()


def _standard_signature(secret: str, message_id: str, stamp: str, body: bytes) -> str:
    signed = f"{message_id}.{stamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(_standard_key(secret), signed, "sha256")).decode()


def _standard_key(secret: str) -> bytes:
    if not secret.startswith(_BEGINS):
        return secret.encode()
    text = secret[len(_BEGINS) :]
    try:
        key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ValueError(f"a secret that begins with {_BEGINS} must continue in base64; make one with new_secret()")
    return key


def _listed(secrets: str | Sequence[str]) -> list[str]:
    keys = [secrets] if isinstance(secrets, str) else list(secrets)
    if not keys:
        raise ValueError("no secret was given")
    if not all(keys):
        raise ValueError("a secret is empty: anyone could sign with it")
    return keys


def _by_name(headers: Headers) -> dict[str, str]:
    """Return headers by lower-case name; refuse a signature header with two different values."""
    found: dict[str, str] = {}
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    for name, value in pairs:
        key, text = _text(name).lower(), _text(value).strip()
        if found.setdefault(key, text) != text and (key in _TRIO or "-signature" in key):
            raise SignatureRefused("malformed", f"the request has the header {key} twice, with different values")
    return found


def _text(value: Text) -> str:
    return value if isinstance(value, str) else value.decode("utf-8", "surrogateescape")


def _check_prefix(prefix: str) -> None:
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"a header prefix must have 1 to 40 letters, digits and hyphens, got {prefix!r}")


def _hint(found: Mapping[str, str]) -> str:
    for name in found:
        if name.startswith("x-") and name.endswith("-signature"):
            return f"; it has {name}: pass prefix={name[2:-10]!r} to accept that, which has no timestamp"
    return ""
