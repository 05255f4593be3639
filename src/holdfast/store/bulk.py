"""Many jobs of one task, rendered for COPY in blocks while the server reads the previous block."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from holdfast.model.job import NewJob, ids
from holdfast.model.limit import Keys, lane
from holdfast.store.call import text_array

_encode = msgspec.json.encode
BLOCK = 100  # small blocks keep the server busy while the next one is rendered


class Bulk:
    """Jobs to enqueue at once. `like` holds what they share. Ids and payloads are kept, so that the same jobs can be
    sent again after a lost reply. `keys` returns the limit keys of a payload, if the task has limits."""

    def __init__(
        self,
        like: NewJob,
        calls: Iterable[Any],
        encode: Callable[[Any], bytes],
        keys: Callable[[bytes], Keys | None] | None = None,
        made: Iterable[str] | None = None,
    ) -> None:
        self.like = like
        self.ids: list[str] = []
        self._payloads: list[bytes] = []
        self._calls = iter(calls)
        self.lanes: dict[int, Keys | None] = {}  # limit keys by lane
        self._encode = encode
        self._keys = keys
        self._made = None if made is None else iter(made)  # ids that were made before

    @classmethod
    def of(cls, jobs: Sequence[NewJob]) -> list[Bulk]:
        """Return jobs that were made one by one, grouped by what they share."""
        groups: dict[Any, list[NewJob]] = {}
        for job in jobs:
            shared = (job.task, job.queue, job.priority, job.tenant, job.max_attempts, job.batch, job.keys)
            groups.setdefault((*shared, _encode(job.retry), _encode(job.headers)), []).append(job)
        return [
            cls(some[0], [each.payload for each in some], bytes, None, [each.id for each in some])
            for some in groups.values()
        ]

    def blocks(self) -> Iterator[bytes]:
        """Yield blocks of COPY lines, with the columns of Calls.copy_sql."""
        head, tail = self._frame()
        same = tail + _end(self.like.lane, self.like.keys)
        if self._keys is None and self.like.lane:
            self.lanes[self.like.lane] = self.like.keys
        while payloads := [self._encode(call) for call in itertools.islice(self._calls, BLOCK)]:
            number = len(payloads)
            made = ids.make_many(number) if self._made is None else list(itertools.islice(self._made, number))
            self.ids += made
            self._payloads += payloads
            parts: list[bytes] = []
            tails = [same] * len(made) if self._keys is None else [tail + self._own_end(data) for data in payloads]
            for id_, data, end in zip(made, payloads, tails, strict=True):
                parts += (id_.encode(), head, data.replace(b"\\", b"\\\\") if b"\\" in data else data, end)
            yield b"".join(parts)

    def jobs(self) -> list[NewJob]:
        """Return every job in full."""
        for _ in self.blocks():
            pass
        own = self._keys or (lambda _: self.like.keys)
        pairs = zip(self.ids, self._payloads, strict=True)
        return [replace(self.like, id=id_, payload=data, keys=own(data)) for id_, data in pairs]

    def _own_end(self, data: bytes) -> bytes:
        keys = self._keys(data) if self._keys is not None else None
        if own := lane(self.like.tenant, keys):
            self.lanes[own] = keys
        return _end(own, keys)

    @property
    def may_have_lanes(self) -> bool:
        """Return whether any job may have a tenant or limits."""
        return self._keys is not None or self.like.lane != 0

    def _frame(self) -> tuple[bytes, bytes]:
        job = self.like
        tenant = "\\N" if job.tenant is None else _text(job.tenant)
        retry = "\\N" if job.retry is None else _text(_encode(job.retry).decode())
        head = f"\t{_text(job.queue)}\t{job.priority}\t{_text(job.task)}\t{tenant}\t"
        headers = "\\N" if job.headers is None else _text(_encode(job.headers).decode())
        batch = job.batch or "\\N"
        return head.encode(), f"\t{job.max_attempts}\t{retry}\t{batch}\t{headers}".encode()


def _end(lane: int, keys: Keys | None) -> bytes:
    text = "\\N" if keys is None else _text(text_array(keys))
    return f"\t{lane}\t{text}\n".encode()


def _text(text: str) -> str:
    """Return text escaped for COPY."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
