"""The internal secrets of the tick endpoint. Several are valid at once, so that they can be rotated."""

from __future__ import annotations

import hmac
from collections.abc import Sequence

from holdfast.errors import ConfigurationError

SHORTEST = 16


def read(setting: str) -> list[bytes]:
    """Return the secrets of a setting. Raise ConfigurationError if there is none or one is too short."""
    found = [each.strip().encode() for each in setting.split(",") if each.strip()]
    shortest = min(map(len, found), default=0)
    if shortest < SHORTEST:
        has = f"has one of {shortest}" if found else "is not set"
        raise ConfigurationError(
            f"the tick endpoint needs a secret of at least {SHORTEST} characters, and HOLDFAST_TICK_SECRETS {has}: set "
            "it; to rotate, list the old and the new one, separated by a comma"
        )
    return found


def knows(given: bytes, secrets: Sequence[bytes]) -> bool:
    """Return whether a value is one of the secrets, in constant time."""
    return sum(hmac.compare_digest(given, each) for each in secrets) > 0
