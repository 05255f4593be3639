"""What a series was measured on."""

from __future__ import annotations

import os
import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.peers.measure import Servers

SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "jit",
)


def facts(servers: Servers) -> dict[str, Any]:
    """Return the machine, the server and its settings, and the day."""
    return {
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "postgresql": {name: servers.sql("postgres", f"show {name}") for name in SETTINGS},
        "redis": "appendonly yes, appendfsync everysec",
        "day": datetime.now(UTC).date().isoformat(),
        "load": round(os.getloadavg()[0], 2),
    }


def _cpu() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
