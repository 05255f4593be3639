"""Payloads: a task's arguments as one JSON object, checked before they are sent to the database."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from typing import Any

import msgspec

from holdfast.errors import InvalidPayload, UsageError
from holdfast.model.codec import enc_hook

_encode = msgspec.json.Encoder(order=None, enc_hook=enc_hook).encode
_encode_sorted = msgspec.json.Encoder(order="sorted").encode
_LONGEST_KEY_TEXT = 1000
# \u0000 is a NUL after an even number of backslashes; after an odd number it is the text "u0000".
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_TEXT = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = [1 if each in b"[{" else -1 for each in range(256)]  # change of depth at a bracket
# PostgreSQL stores 1e308 with all of its 309 digits, 60 times as long as it was sent.
LONGEST_NUMBER = 60  # times
_EXPONENT = re.compile(rb"[0-9][eE][+-]?([0-9]+)")
_EXPONENT_OR_TEXT = re.compile(_TEXT.pattern + rb"|[0-9][eE][+-]?([0-9]+)")
_LARGEST_EXPONENT = 999
_SLICE = 65_536  # bytes searched at once: a regular expression holds the GIL


class Encoded(bytes):
    """A payload that was read from JSON and checked. `held` is its decoded value, so that it is decoded once. A large
    payload has none, because the decoded value takes many times its size."""

    reader: object = None
    held: Any = None


def encode(value: object, what: str) -> bytes:
    """Return a value as JSON, or raise InvalidPayload."""
    try:
        data = _encode(value)
        if b"null" in data:  # msgspec writes NaN and infinities as null
            _refuse_non_finite(value, what)
        return data
    except RecursionError:
        raise InvalidPayload(f"{what} is nested too deeply") from None
    except (TypeError, ValueError, OverflowError, UnicodeEncodeError, msgspec.MsgspecError) as error:
        raise InvalidPayload(f"{what} cannot be encoded as JSON: {error}") from error


def _refuse_non_finite(value: object, what: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidPayload(f"{what} holds {value}, which JSON cannot represent")
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
    """Return the text if PostgreSQL can store it, or raise UsageError."""
    if not isinstance(text, str):
        raise UsageError(f"{what} must be a string, got {text!r:.60}")
    if not 1 <= len(text) <= longest:
        raise UsageError(f"{what} must have 1 to {longest} characters, got {len(text)}: {text[:60]!r}")
    if "\x00" in text or text != text.encode("utf-8", "ignore").decode():
        raise UsageError(f"{what} {text[:60]!r} contains a NUL or a lone surrogate, which PostgreSQL cannot store")
    return text


def check_headers(headers: Any, max_size: int, max_depth: int) -> None:
    """Raise an error for headers that cannot be stored; middleware may set anything."""
    what = "a job's headers"
    if not isinstance(headers, dict):
        raise UsageError(f"{what} must be a dict, got {headers!r:.60}")
    check_limits(encode(headers, what), what, max_size, max_depth)


def check_limits(data: bytes, what: str, max_size: int, max_depth: int, setting: str = "HOLDFAST_MAX_PAYLOAD") -> None:
    """Raise InvalidPayload for JSON that is too large or too deep, or that contains a NUL."""
    size = len(data)
    if size <= max_size < size * LONGEST_NUMBER:
        size = stored_size(data, what, max_size)
    if size > max_size:
        raise InvalidPayload(
            f"{what} has {size:,} bytes, more than the {max_size:,} allowed; store large data elsewhere and "
            f"pass a reference, or raise {setting}"
        )
    if b"\\u0000" in data and _NUL.search(data):
        raise InvalidPayload(f"{what} contains a NUL character, which PostgreSQL cannot store in JSON")
    # The number of brackets is cheap to count and an upper bound, so the depth is rarely measured.
    if data.count(b"{") + data.count(b"[") > max_depth and _is_deeper(data, max_depth):
        raise InvalidPayload(f"{what} is nested more than {max_depth} levels deep")


def stored_size(data: bytes, what: str, enough: int) -> int:
    """Return how many bytes PostgreSQL stores, with exponents written out; stop counting above `enough`.

    Refuse exponents above _LARGEST_EXPONENT. The first pass also counts exponents inside strings, so it is an upper
    bound; only if that is too much does a second pass exclude strings.
    """
    largest, more = 0, 0
    for start in range(0, len(data), _SLICE):
        for digits in _EXPONENT.findall(data[start : start + _SLICE + 8]):
            exponent = int(digits[:9])
            largest, more = max(largest, exponent), more + exponent
    if largest <= _LARGEST_EXPONENT and len(data) + more <= enough:
        return len(data) + more
    more = 0
    for found in _EXPONENT_OR_TEXT.finditer(data):
        if found[1] is None:
            continue
        if (exponent := int(found[1][:9])) > _LARGEST_EXPONENT:
            raise InvalidPayload(f"{what} holds a number with the exponent {exponent}; send it as a string")
        more += exponent
        if len(data) + more > enough:
            break
    return len(data) + more


def _is_deeper(data: bytes, most: int) -> bool:
    """Return whether JSON is nested deeper than `most` levels."""
    brackets = _TEXT.sub(b"", data).translate(None, _NO_BRACKETS)
    level = 0
    for start in range(0, len(brackets), _SLICE):
        levels = list(itertools.accumulate(map(_STEPS.__getitem__, brackets[start : start + _SLICE]), initial=level))
        if max(levels) > most:
            return True
        level = levels[-1]
    return False


def sorted_json(data: bytes) -> str:
    """Return the JSON with sorted keys, so that equal arguments give equal text."""
    return _encode_sorted(msgspec.json.decode(data)).decode()


def dedupe_key(task: str, tenant: str | None, text: str) -> str:
    """Return `<task>::<tenant|global>::<text>`, unique to task and tenant. A long text is replaced by its hash."""
    if len(text.encode()) > _LONGEST_KEY_TEXT:
        text = "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return f"{_part(task)}::{'global' if tenant is None else _part(tenant, 'global')}::{text}"


def _part(name: str, reserved: str = "") -> str:
    """Return a name as part of a key, escaped if it could be confused with another key."""
    if name == reserved or ":" in name or "%" in name:
        return "%" + name.replace("%", "%25").replace(":", "%3A")
    return name
