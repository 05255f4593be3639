"""Payloads: one JSON object of a task's arguments, checked before the database is asked."""

from __future__ import annotations

import hashlib
import math
import re
from typing import Any

import msgspec

from holdfast.errors import InvalidPayload, UsageError
from holdfast.model.codec import enc_hook

_encode = msgspec.json.Encoder(order=None, enc_hook=enc_hook).encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_LONGEST_KEY_TEXT = 1000
# A NUL is \u0000 after an even number of backslashes; after an odd number it is the text "u0000".
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def encode(value: object, what: str) -> bytes:
    """JSON bytes of a value, or a message that says why it has none."""
    try:
        data = _encode(value)
        if b"null" in data:  # what msgspec makes of a number that JSON has not
            _refuse_non_finite(value, what)
        return data
    except RecursionError:
        raise InvalidPayload(f"{what} is nested too deeply") from None
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise InvalidPayload(f"{what} cannot be carried as JSON: {error}") from error


def _refuse_non_finite(value: object, what: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidPayload(f"{what} holds {value}, which JSON cannot carry")
    if isinstance(value, dict):
        value = list(value.values())
    elif isinstance(value, msgspec.Struct):
        value = list(msgspec.structs.astuple(value))
    elif (fields := getattr(value, "__dataclass_fields__", None)) is not None:
        value = [getattr(value, name, None) for name in fields]
    elif (attributes := getattr(value, "__attrs_attrs__", None)) is not None:
        value = [getattr(value, each.name, None) for each in attributes]
    if isinstance(value, list | tuple | set | frozenset):
        for each in value:
            _refuse_non_finite(each, what)


def check_text(text: Any, what: str, longest: int) -> str:
    """A name that PostgreSQL can store."""
    if not isinstance(text, str):
        raise UsageError(f"{what} is a text, got {text!r:.60}")
    if not 1 <= len(text) <= longest:
        raise UsageError(f"{what} has 1 to {longest} characters, got {len(text)}: {text[:60]!r}")
    if "\x00" in text or text != text.encode("utf-8", "ignore").decode():
        raise UsageError(f"{what} {text[:60]!r} holds a NUL or half a character, which PostgreSQL cannot store")
    return text


def check_headers(headers: Any, max_size: int, max_depth: int) -> None:
    """Refuses headers that could not be carried; middleware may set anything."""
    what = "a job's headers"
    if not isinstance(headers, dict):
        raise UsageError(f"{what} are a dict, got {headers!r:.60}")
    check_limits(encode(headers, what), what, max_size, max_depth)


def check_limits(data: bytes, what: str, max_size: int, max_depth: int, setting: str = "HOLDFAST_MAX_PAYLOAD") -> None:
    """Refuses what PostgreSQL or a worker would choke on: too large, too deep, or holding a NUL."""
    if len(data) > max_size:
        raise InvalidPayload(
            f"{what} has {len(data):,} bytes, more than the {max_size:,} allowed; store large data elsewhere and "
            f"pass a reference, or raise {setting}"
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
    if len(text.encode()) > _LONGEST_KEY_TEXT:
        text = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return f"{_part(task)}::{'global' if tenant is None else _part(tenant, 'global')}::{text}"


def _part(name: str, reserved: str = "") -> str:
    """A name as part of a key; one that could be taken for another's, or for the frame, is escaped."""
    if name == reserved or ":" in name or "%" in name:
        return "%" + name.replace("%", "%25").replace(":", "%3A")
    return name
