"""Configuration from the environment: the document's names and default values."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Config:
    """Times are in seconds, but for base_delay_minutes."""

    worker_id: str
    lock_timeout: float
    heartbeat: float
    base_delay_minutes: float
    max_delay_minutes: float
    breaker_failures: int
    breaker_pause: float
    cache_enabled: bool
    cache_ttl: float
    cache_path: Path

    @classmethod
    def load(cls, environ: Mapping[str, str] = os.environ) -> Config:
        """Read the environment once, when the application is imported."""
        lock_timeout = float(environ.get("JOB_LOCK_TIMEOUT_SECONDS", "300"))
        return cls(
            worker_id=environ.get("WORKER_ID", "worker"),
            lock_timeout=lock_timeout,
            heartbeat=min(20.0, lock_timeout / 3),  # a shorter timeout needs a quicker heartbeat
            base_delay_minutes=float(environ.get("BASE_DELAY_MINUTES", "5")),
            max_delay_minutes=1440.0,
            breaker_failures=5,
            breaker_pause=float(environ.get("BREAKER_PAUSE_SECONDS", "300")),
            cache_enabled=environ.get("CACHE_ENABLED", "true").lower() != "false",
            cache_ttl=float(environ.get("CACHE_TTL_SECONDS", "3600")),
            cache_path=Path(environ.get("CACHE_PATH", "coins-cache.sqlite3")),
        )
