"""The environment names of the design and defaults, as Holdfast's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from holdfast import Retry


def holdfast_settings(env: Mapping[str, str]) -> dict[str, Any]:
    """Return the arguments for `Holdfast(...)`."""
    return {
        "poll": int(env.get("BPC_JOBS_POLL_INTERVAL_MS", "1000")) / 1000,
        "lease": float(env.get("BPC_JOBS_LEASE_SECONDS", "60")),
        "renew": float(env.get("BPC_JOBS_LEASE_RENEW_SECONDS", "30")),
        "amqp_enabled": _is_on(env, "BPC_QUEUE_ENABLED"),
        "amqp_url": env.get("BPC_QUEUE_URL", "amqp://guest:guest@127.0.0.1:5672/"),
        "amqp_exchange": env.get("BPC_QUEUE_EXCHANGE", "bpc"),
        "amqp_routing_key": env.get("BPC_QUEUE_ROUTING_KEY", "jobs.trigger"),
        "health_require_amqp": _is_on(env, "BPC_HEALTH_REQUIRE_QUEUE"),
    }


def backoff(env: Mapping[str, str]) -> Retry:
    """Return min(1024, 2^attempts) seconds for five attempts: 2, 4, 8, 16 s, and then the dead letter."""
    return Retry.exponential(
        base=float(env.get("BPC_JOBS_BACKOFF_SECONDS", "2")),
        cap=1024,
        max_attempts=int(env.get("BPC_JOBS_MAX_ATTEMPTS", "5")),
    )


def _is_on(env: Mapping[str, str], name: str) -> bool:
    return env.get(name, "false").strip().lower() in ("true", "1", "yes", "on")
