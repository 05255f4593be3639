# Generated from halves_async.py by tools/async_to_sync.py. Change that file, and run `make sync`.
"""Serve several requests in one call; if it fails, serve each half by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from holdfast.errors import DatabaseUnavailable

W = TypeVar("W")
A = TypeVar("A")


def serve(act: Callable[[list[W]], Any], requests: list[W]) -> list[A | Exception]:
    """Return the result or the error of each request. The error of an unreachable database is that of all; any other
    is that of the faulty request alone."""
    try:
        results: Sequence[A | Exception] = act(requests)
        return list(results)
    except DatabaseUnavailable as error:
        return [error] * len(requests)
    except Exception as error:
        if len(requests) == 1:
            return [error]
    half = len(requests) // 2
    return [*serve(act, requests[:half]), *serve(act, requests[half:])]
