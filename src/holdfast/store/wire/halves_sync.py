# Generated from halves_async.py by tools/async_to_sync.py. Change that file, and run `make sync`.
"""Serve several requests in one call; if it fails because of one of them, serve each half by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.errors import ConfigurationError, DatabaseUnavailable, HoldfastError, SchemaError

W = TypeVar("W")
A = TypeVar("A")
# Classes of SQLSTATE that no single request causes: connections, read-only, conflicts, resources, locks, operators.
_OF_ALL = ("08", "25", "40", "53", "55", "57", "58")


def serve(act: Callable[[list[W]], Any], requests: list[W]) -> list[A | Exception]:
    """Return the result or the error of each request. An error that any request would meet is that of all. Errors that
    are not ours, such as those of signal handlers, are raised."""
    try:
        results: Sequence[A | Exception] = act(requests)
        return list(results)
    except HoldfastError as error:
        if len(requests) == 1 or _is_of_all(error):
            return [error] * len(requests)
    half = len(requests) // 2
    return [*serve(act, requests[:half]), *serve(act, requests[half:])]


def _is_of_all(error: HoldfastError) -> bool:
    state = getattr(error.__cause__, "sqlstate", None)
    unavailable = isinstance(error, DatabaseUnavailable) and (state is None or state[:2] in _OF_ALL)
    return unavailable or isinstance(error, SchemaError | ConfigurationError)
