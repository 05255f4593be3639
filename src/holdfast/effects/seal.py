"""Secrets at rest: sealed with the keys of the setting `secret_keys`, or stored in plain text if there are none.

The first key seals, every key opens. To rotate keys, put the new one first and keep the old one until all secrets are
sealed again. The prefix of a stored secret is `plain:` or `fernet:` (AES-128-CBC with HMAC-SHA256, by cryptography).
"""

from __future__ import annotations

import base64
import secrets
from functools import lru_cache
from typing import TYPE_CHECKING

from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography.fernet import MultiFernet

_PLAIN = "plain:"
_SEALED = "fernet:"


def new_key() -> str:
    """Return a new key for `HOLDFAST_SECRET_KEYS`."""
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


def seal(secret: str, keys: str) -> str:
    """Return a secret in its stored form; `keys` is the setting."""
    box = _box(keys)
    return _PLAIN + secret if box is None else _SEALED + box.encrypt(secret.encode()).decode()


def is_sealed(stored: str) -> bool:
    """Return whether a stored secret needs a key."""
    return stored.startswith(_SEALED)


def unseal(stored: str, keys: str) -> str:
    """Return the secret, or raise ConfigurationError if no key opens it."""
    if stored.startswith(_PLAIN):
        return stored[len(_PLAIN) :]
    if not is_sealed(stored):
        raise ConfigurationError(
            "a stored secret begins with neither 'plain:' nor 'fernet:'; rotate the endpoint's secret"
        )
    box = _box(keys)
    if box is None:
        raise ConfigurationError(
            "a webhook's secret is sealed; set HOLDFAST_SECRET_KEYS to the key that it was sealed with"
        )
    from cryptography.fernet import InvalidToken

    try:
        return box.decrypt(stored[len(_SEALED) :]).decode()
    except InvalidToken:
        raise ConfigurationError(
            "no key in HOLDFAST_SECRET_KEYS opens a webhook's secret: add the key that it was sealed with, "
            "or rotate the endpoint's secret"
        ) from None


@lru_cache(maxsize=8)
def _box(keys: str) -> MultiFernet | None:
    listed = [key.strip() for key in keys.split(",") if key.strip()]
    if not listed:
        return None
    try:
        from cryptography.fernet import Fernet, MultiFernet
    except ImportError:
        raise ConfigurationError(
            "secret_keys is set, but the library cryptography is missing: pip install 'holdfast-jobs[webhooks]'"
        ) from None
    boxes = []
    for place, key in enumerate(listed, start=1):
        try:
            boxes.append(Fernet(key))
        except ValueError:
            raise ConfigurationError(
                f"key {place} of {len(listed)} in HOLDFAST_SECRET_KEYS is not 32 bytes in URL-safe base64; "
                "make one with `holdfast webhooks key`"
            ) from None
    return MultiFernet(boxes)
