"""Values as bytes and hashes: the same everywhere and every time, so that doing a job twice gives the same passport."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from typing import Any


def canonical(value: Any) -> bytes:
    """Return JSON with sorted names and no spaces."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def merkle_root(hashes: Iterable[bytes]) -> bytes:
    """Return the root over fact hashes, in whatever order they come. The first byte distinguishes leaves from nodes."""
    level = [digest(b"\x00" + each) for each in sorted(hashes)]
    while len(level) > 1:
        pairs = [level[n : n + 2] for n in range(0, len(level), 2)]
        level = [digest(b"\x01" + b"".join(pair)) if len(pair) == 2 else pair[0] for pair in pairs]
    return level[0] if level else digest(b"")


def base32_no_pad(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=")
