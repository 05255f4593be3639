"""From JSON, queries and paths to the structs that routes take; errors name each place with its value."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from holdfast.errors import hint
from holdfast.telemetry.scrub import scrub
from holdfast.web.fields import Body, Query, read_field
from holdfast.web.problems import Problem

B = TypeVar("B", bound=Body)
Q = TypeVar("Q", bound=Query)
SHOWN = 5  # errors in the detail
LONGEST_SHOWN = 100  # characters of a value in an error message
MOST_PARAMETERS = 100  # in a query
_PATH = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_NAMED = re.compile(r"Object (?:contains unknown|missing required) field `(.*)`")
_raw_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@functools.cache
def _decoder(kind: Any) -> Callable[[Any], Any]:
    return msgspec.json.Decoder(kind, dec_hook=read_field).decode


def decode_body(data: bytes, kind: type[B], content_type: str = "application/json") -> B:
    """Return the body of a request, or raise a Problem that names all errors."""
    if content_type and "json" not in content_type:
        raise Problem(422, f"body: {_wanted(kind)}, and Content-Type: application/json")
    try:
        body: B = _decoder(kind)(data)
    except msgspec.ValidationError as error:
        raise _mismatched(data, kind, error) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise _malformed(data, kind, error) from None
    return body


def _mismatched(data: bytes, kind: type[Body], error: Exception) -> Problem:
    """Return the error for a body that does not fit; behind its first wrong value it may not even be JSON."""
    try:
        fields = _raw_fields(data)
    except msgspec.ValidationError:
        return Problem(422, f"body: {_wanted(kind)}")
    except (msgspec.DecodeError, RecursionError) as found:
        return _malformed(data, kind, found)
    return invalid("body", kind, fields, str(error))


def _wanted(kind: type[Body]) -> str:
    names = " and ".join(_required(kind))
    return "send a JSON object" + (f" with {names}" if names else "")


@functools.cache
def _required(kind: type[msgspec.Struct]) -> list[str]:
    return [each.encode_name for each in msgspec.structs.fields(kind) if each.required]


def _malformed(data: bytes, kind: type[Body], error: Exception) -> Problem:
    if not data:
        return Problem(422, f"body: {_wanted(kind)}")
    if isinstance(error, RecursionError):
        return Problem(422, "body: nested too deeply")
    try:
        json.loads(data)  # the standard library reports where the error is
    except json.JSONDecodeError as found:
        return Problem(422, f"body: not JSON at character {found.pos}: {found.msg}")
    except (ValueError, RecursionError):
        return Problem(422, f"body: {error}")
    detail = "body: not JSON in UTF-8, or it contains NaN, an infinity or a lone surrogate"
    return Problem(422, detail, "invalid-payload")


def decode_query(query_string: bytes, kind: type[Q]) -> Q:
    """Return the query parameters of a request, or raise a Problem that names all errors."""
    if not query_string and not _required(kind):
        return kind()
    fields = _parameters(query_string)
    try:
        return msgspec.convert(fields, kind, strict=False, dec_hook=read_field)
    except msgspec.ValidationError as error:
        raise invalid("query", kind, fields, str(error)) from None


def _parameters(query_string: bytes) -> dict[str, str]:
    try:
        pairs = parse_qsl(query_string.decode("latin-1"), keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError:
        raise Problem(422, f"query: at most {MOST_PARAMETERS} parameters") from None
    return dict(pairs)


def decode_path(fields: Mapping[str, str], kinds: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a path by name, or raise a Problem."""
    found = {}
    for name, value in fields.items():
        try:
            found[name] = msgspec.convert(value, kinds[name], strict=False)
        except msgspec.ValidationError as error:
            raise _problem([_in_words(f"path.{name}", kinds[name], value, str(error))]) from None
    return found


def invalid(place: str, kind: type[msgspec.Struct], fields: Mapping[str, Any], error: str) -> Problem:
    """Return all errors of a body or a query, found field by field. msgspec reports the first one only."""
    known = {each.encode_name: each.type for each in msgspec.structs.fields(kind)}
    what = "no such parameter" if place == "query" else "no such field"
    errors = []
    for name, value in fields.items():
        if name not in known:
            errors.append((f"{place}.{name[:100]}", what + near(name, known)))
        elif (found := _error_of(value, known[name])) is not None:
            errors.append(_in_words(f"{place}.{name}", known[name], value, found))
    errors += [(f"{place}.{name}", "is required") for name in _required(kind) if name not in fields]
    return _problem(errors or [(place, _plain(error))])


def _error_of(value: Any, kind: Any) -> str | None:
    try:
        if isinstance(value, msgspec.Raw):
            _decoder(kind)(value)
        else:
            msgspec.convert(value, kind, strict=False, dec_hook=read_field)
    except (msgspec.MsgspecError, RecursionError) as error:
        return str(error)
    return None


def _problem(errors: list[tuple[str, str]]) -> Problem:
    more = f"; and {len(errors) - SHOWN} more" if len(errors) > SHOWN else ""
    detail = "; ".join(f"{place}: {message}" for place, message in errors[:SHOWN]) + more
    return Problem(422, detail, errors=[{"at": place, "message": message} for place, message in errors[:20]])


def _in_words(place: str, kind: Any, value: Any, error: str) -> tuple[str, str]:
    """Return the place of an error inside a field, and its message with the rejected value."""
    message, _, path = error.partition(" - at `$")
    steps = [name or int(number) for name, number in _PATH.findall(path.rstrip("`"))]
    found = _value_at(value, steps)
    if named := _NAMED.fullmatch(message):
        what = "no such field" if "unknown" in message else "a required field is missing:"
        message = f"{what} {named[1][:100]!r}"
    elif message.startswith("Invalid enum value"):
        message = (
            f"expected one of {', '.join(map(repr, _choices(kind, [each for each in steps if isinstance(each, str)])))}"
        )
    elif "matching regex" in message and isinstance(found, str):
        message = "contains a NUL, which PostgreSQL cannot store" if "\x00" in found else "may not contain a slash"
    return ".".join([place, *map(str, steps)]), _plain(message) + _got(place, found)


def _plain(message: str) -> str:
    """Return a message of msgspec in our form: lower case, without the type that the value shows by itself."""
    message = re.sub(r", got `\w+`$", "", message.partition(" - at `$")[0]).replace("`", "")
    return message[:1].lower() + message[1:]


def _value_at(value: Any, steps: Iterable[str | int]) -> Any:
    """Return the value inside a field, or None if it cannot be shown."""
    try:
        value = msgspec.json.decode(value) if isinstance(value, msgspec.Raw) else value
        for step in steps:
            value = value[step]
    except (msgspec.MsgspecError, RecursionError, LookupError, TypeError):
        return None
    return value


def _got(place: str, value: Any) -> str:
    """Return the rejected value for the message, unless it is long, structured or a secret."""
    if not isinstance(value, str | int | float) or "secret" in place:
        return ""
    return f", got {scrub(repr(value))}" if len(repr(value)) <= LONGEST_SHOWN else ""


def _choices(kind: Any, names: Sequence[str]) -> list[Any]:
    """Return the values of the literal that a type has, or the field below it with these names."""
    if get_origin(kind) is Literal:
        return list(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = {each.encode_name: each.type for each in msgspec.structs.fields(kind)}
        return _choices(fields[names[0]], names[1:]) if names else []
    return [choice for each in get_args(kind) for choice in _choices(each, names)]


def near(name: str, known: Iterable[str]) -> str:
    """Return a hint: the nearest known name, or all of them."""
    return hint(name, known := sorted(known), f"; known: {', '.join(known) or 'none'}")
