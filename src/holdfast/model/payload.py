"""Payloads: one JSON object of a task's arguments, checked before the database is asked."""

from __future__ import annotations

import hashlib
import re

import msgspec

from holdfast.errors import InvalidPayload

_encode = msgspec.json.Encoder(order=None).encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_LONGEST_KEY_TEXT = 1000
# A NUL is \u0000 after an even number of backslashes; after an odd number it is the text "u0000".
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def encode(value: object, what: str) -> bytes:
    """JSON bytes of a value, or a message that says why it has none."""
    try:
        return _encode(value)
    except RecursionError:
        raise InvalidPayload(f"{what} is nested too deeply") from None
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise InvalidPayload(f"{what} cannot be carried as JSON: {error}") from error


def check_limits(data: bytes, what: str, max_size: int, max_depth: int) -> None:
    """Refuses what PostgreSQL or a worker would choke on: too large, too deep, or holding a NUL."""
    if len(data) > max_size:
        raise InvalidPayload(
            f"{what} has {len(data):,} bytes, more than the {max_size:,} allowed; store large data elsewhere and "
            "pass a reference, or raise HOLDFAST_MAX_PAYLOAD"
        )
    if b"\\u0000" in data and _NUL.search(data):
        raise InvalidPayload(f"{what} holds a NUL character, which PostgreSQL cannot store in JSON")
    # Counting brackets is cheap and never too low, so the real depth is measured only when it could be too much.
    if data.count(b"{") + data.count(b"[") > max_depth and (depth := _depth(data)) > max_depth:
        raise InvalidPayload(f"{what} is nested {depth} levels deep, more than the {max_depth} allowed")


def _depth(data: bytes) -> int:
    deepest = level = 0
    for token in re.finditer(rb'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]', data):
        first = token[0][0]
        if first in b"[{":
            level += 1
            deepest = max(deepest, level)
        elif first in b"]}":
            level -= 1
    return deepest


def sorted_json(data: bytes) -> str:
    """The same JSON with its keys in order: equal arguments give equal text."""
    return _encode_sorted(msgspec.json.decode(data)).decode()


def dedupe_key(task: str, tenant: str | None, text: str) -> str:
    """`<task>::<tenant|global>::<text>`: no task or tenant meets another's key. A long text gives way to its hash."""
    if len(text) > _LONGEST_KEY_TEXT:
        text = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return f"{task}::{tenant or 'global'}::{text}"
