"""Dead letters, and the blocks that handlers reported: `hf.dead`."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.client.operation import Noun, operation
from holdfast.model.job import BlockInfo, parse_id
from holdfast.store.call import Call


class DeadLetters(Noun):
    """`hf.dead`: failed and dead jobs that wait for a decision."""

    def _retry(self, job_ids: Iterable[str]) -> Call[list[str]]:
        """Queue failed or dead jobs again with fresh attempts. Return the ids of those that were queued."""
        return self._hf.calls.dead.retry([parse_id(i) for i in job_ids])

    retry, aretry = operation(_retry)

    def _discard(self, job_ids: Iterable[str]) -> Call[list[str]]:
        """Move failed or dead jobs to the history for good. Return the ids of those that were moved."""
        return self._hf.calls.dead.discard([parse_id(i) for i in job_ids])

    discard, adiscard = operation(_discard)

    def _blocks(self) -> Call[list[BlockInfo]]:
        """Return what handlers reported as blocked (Dead(block=...)), the latest first."""
        return self._hf.calls.dead.blocks()

    blocks, ablocks = operation(_blocks)

    def _clear_blocks(self, *keys: str) -> Call[list[str]]:
        """Remove keys from the list of blocks. Return those that were on it."""
        return self._hf.calls.dead.clear_blocks(keys)

    clear_blocks, aclear_blocks = operation(_clear_blocks)
