"""Errors in groups: `hf.dead.errors`."""

from __future__ import annotations

import builtins

from holdfast.client.operation import Noun, operation
from holdfast.model.failure import ErrorGroup
from holdfast.model.view import View
from holdfast.store.call import Call


class Errors(Noun):
    """`hf.dead.errors`: failures in groups, by task, type, normalized message and place in the code."""

    def _list(
        self, *, task: str | None = None, tenant: str | None = None, limit: int = 50
    ) -> Call[builtins.list[ErrorGroup]]:
        """Return the groups with the latest failures. Counts are a few seconds old. With a tenant they are exact, and
        of its newest 10,000 dead jobs only: without failures that were retried, and without tracebacks."""
        return self._calls.errors.list(task=task, limit=limit, view=View(tenant=tenant))

    list, alist = operation(_list)

    def _get(self, fingerprint: str, *, tenant: str | None = None) -> Call[ErrorGroup | None]:
        """Return a group, or None; with a tenant as list() does."""
        return self._calls.errors.get(fingerprint, View(tenant=tenant))

    get, aget = operation(_get)

    def _dead_ids(self, fingerprint: str, *, limit: int = 500, after: str | None = None) -> Call[builtins.list[str]]:
        """Return the ids of a group's dead jobs, in ascending order after an id: for hf.dead.retry() or discard()."""
        return self._calls.errors.dead_ids(fingerprint, limit=limit, after=after)

    dead_ids, adead_ids = operation(_dead_ids)
