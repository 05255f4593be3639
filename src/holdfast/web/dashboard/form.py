"""Fields of forms and of filters in a URL. Browsers send empty fields, which count as left out."""

from __future__ import annotations

from typing import Any, TypeVar, get_args, get_origin
from urllib.parse import parse_qsl

import msgspec

from holdfast.web.decode import MOST_PARAMETERS, invalid
from holdfast.web.fields import LongText, Query, read_field
from holdfast.web.problems import Problem

S = TypeVar("S", bound=msgspec.Struct)
MOST_FIELDS = 1100  # a form may name a page of selected jobs


class Form(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of a form. Unknown ones are rejected."""


class ReasonForm(Form, kw_only=True):
    """Reason of a change."""

    reason: LongText | None = None


def pairs(data: bytes) -> list[tuple[str, str]]:
    """Return the fields that are not empty."""
    try:
        text = data.decode("ascii")
        return parse_qsl(text, max_num_fields=MOST_FIELDS)
    except (UnicodeDecodeError, ValueError):
        raise Problem(422, f"form: expected at most {MOST_FIELDS} fields, URL-encoded") from None


def read_form(data: bytes, kind: type[S]) -> S:
    """Decode a form or a query, or raise a Problem that names all errors."""
    given: dict[str, Any] = {}
    lists = {each.encode_name for each in msgspec.structs.fields(kind) if _is_list(each.type)}
    for name, value in pairs(data):
        if name in lists:
            given.setdefault(name, []).append(value)
        else:
            given[name] = value
    if issubclass(kind, Query) and len(given) > MOST_PARAMETERS:
        raise Problem(422, f"query: at most {MOST_PARAMETERS} parameters")
    try:
        return msgspec.convert(given, kind, strict=False, dec_hook=read_field)
    except msgspec.ValidationError as error:
        raise invalid("query" if issubclass(kind, Query) else "form", kind, given, str(error)) from None


def _is_list(kind: Any) -> bool:
    return get_origin(kind) is list or any(map(_is_list, get_args(kind)))
