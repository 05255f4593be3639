"""Effects that happen once: rows in the caller's tables, keys, webhook signatures, and safe addresses.

Submodules are imported on first use: a receiver that only verifies signatures needs no database driver.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.effects.address import refusal
    from holdfast.effects.keys import job_key
    from holdfast.effects.signature import SignatureRefused, Verified, verify
    from holdfast.effects.sinks import ainsert_once, aupsert_if_stronger, insert_once, upsert_if_stronger

__all__ = [
    "SignatureRefused",
    "Verified",
    "ainsert_once",
    "aupsert_if_stronger",
    "insert_once",
    "job_key",
    "refusal",
    "upsert_if_stronger",
    "verify",
]

_HOMES = {
    "address": ("refusal",),
    "keys": ("job_key",),
    "signature": ("SignatureRefused", "Verified", "verify"),
    "sinks": ("ainsert_once", "aupsert_if_stronger", "insert_once", "upsert_if_stronger"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"holdfast.effects.{module}"), name)
    raise AttributeError(f"module 'holdfast.effects' has no attribute {name!r}")
