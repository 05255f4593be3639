"""A small typed language: {"types": {"mass_kg": "number"}, "rules": [{"field": "mass_kg", "op": ">", "value": 0}]}."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from passports.errors import PassportError

TYPES: dict[str, tuple[type, ...]] = {"number": (int, float), "text": (str,), "flag": (bool,)}
OPS: dict[str, tuple[Callable[[Any, Any], bool], tuple[str, ...]]] = {
    "=": (operator.eq, ("number", "text", "flag")),
    "<>": (operator.ne, ("number", "text", "flag")),
    "<": (operator.lt, ("number",)),
    "<=": (operator.le, ("number",)),
    ">": (operator.gt, ("number",)),
    ">=": (operator.ge, ("number",)),
}


def evaluate(package: dict[str, Any], rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each rule with whether it holds for all rows. Types are checked before anything is compared."""
    types, kept = package.get("types", {}), list(rows)
    return [_checked(rule, types, kept) for rule in package.get("rules", [])]


def _checked(rule: dict[str, Any], types: dict[str, str], rows: list[dict[str, Any]]) -> dict[str, Any]:
    field, op, value = rule.get("field"), rule.get("op"), rule.get("value")
    kind = types.get(str(field))
    if kind not in TYPES or op not in OPS:
        raise _wrong(f"rule {rule} names a field without a type, or no operation")
    compare, allowed = OPS[op]
    if kind not in allowed:
        raise _wrong(f"{op!r} does not compare {kind}s, and {field!r} is one")
    for each in (value, *(row.get(str(field)) for row in rows)):
        if not isinstance(each, TYPES[kind]) or (isinstance(each, bool) and kind != "flag"):
            raise _wrong(f"{field!r} is a {kind}, got {each!r}")
    return {"rule": f"{field} {op} {value}", "holds": all(compare(row[str(field)], value) for row in rows)}


def _wrong(message: str) -> PassportError:
    return PassportError("RULE_TYPE_ERROR", message)
