"""Errors in groups: `hf.dead.errors`."""

from __future__ import annotations

import builtins

from holdfast.client.operation import Noun, operation
from holdfast.model.failure import ErrorGroup
from holdfast.store.call import Call


class Errors(Noun):
    """`hf.dead.errors`: failures in groups, by task, type, normalised message and place in the code."""

    def _list(self, *, task: str | None = None, limit: int = 50) -> Call[builtins.list[ErrorGroup]]:
        """Return the groups with the latest failures. Counts are a few seconds old."""
        return self._calls.errors.list(task=task, limit=limit)

    list, alist = operation(_list)

    def _get(self, fingerprint: str) -> Call[ErrorGroup | None]:
        """Return a group, or None."""
        return self._calls.errors.get(fingerprint)

    get, aget = operation(_get)

    def _dead_ids(self, fingerprint: str, *, limit: int = 500, after: str | None = None) -> Call[builtins.list[str]]:
        """Return the ids of a group's dead jobs, in ascending order after an id: for hf.dead.retry() or discard()."""
        return self._calls.errors.dead_ids(fingerprint, limit=limit, after=after)

    dead_ids, adead_ids = operation(_dead_ids)
