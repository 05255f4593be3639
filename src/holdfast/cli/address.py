"""Addresses of databases, as they are shown."""

from __future__ import annotations

from pathlib import Path

from holdfast.store.wire.connect import hide_password, same_database

__all__ = ["hide_password", "same_database", "shareable"]


def shareable(dsn: str) -> str:
    """Return a DSN that works in any folder and shows no password."""
    if dsn.startswith("embedded:"):
        return f"embedded:{Path(dsn.removeprefix('embedded:')).expanduser().resolve()}"
    return hide_password(dsn)
