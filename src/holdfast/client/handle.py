"""Handles of accepted jobs: their ids, and the ways to wait for them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

import msgspec

from holdfast.client.operation import Steps, operation
from holdfast.errors import JobFailed
from holdfast.model.job import JobInfo, Status
from holdfast.model.signature import Signature
from holdfast.store.call import Call

if TYPE_CHECKING:
    from holdfast.client.app import Holdfast

R_co = TypeVar("R_co", covariant=True)


class Handle(msgspec.Struct, Generic[R_co], frozen=True):
    """An accepted job. `existing` is true if an earlier job has its id or dedupe key."""

    id: str
    outcome: str
    _hf: Holdfast
    _signature: Signature

    def __repr__(self) -> str:
        return f"<job {self.id} of task {self._signature.name!r}, {self.outcome}>"

    @property
    def existing(self) -> bool:
        return self.outcome != "created"

    def _info(self) -> Call[JobInfo | None]:
        """Return the job's current state, or None."""
        return self._hf.database.calls.jobs.get(self.id)

    info, ainfo = operation(_info)

    def _result(self, timeout: float | None = None) -> Steps[R_co]:
        """Wait for the job to end and return its handler's result. Raise JobFailed if it ended without success,
        TimeoutError if it has not ended in time. Results are kept as long as history."""
        name = f"job {self.id}"
        info = yield from self._hf.database.polling.until(self._info(), _has_ended, name, timeout)
        return cast(R_co, self._signature.result.read(_stored_result(info)))

    result, aresult = operation(_result)


class Handles(Sequence[Handle[R_co]]):
    """Accepted jobs, in the order of their calls. `ids` are plain texts. A handle is made on access, because making
    all of them would add a tenth to the time of enqueue_many."""

    __slots__ = ("_hf", "_outcomes", "_signature", "ids")

    def __init__(self, ids_: list[str], outcomes: list[str] | None, hf: Holdfast, signature: Signature) -> None:
        self.ids = ids_
        self._outcomes = outcomes  # None: each was created
        self._hf = hf
        self._signature = signature

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Handle[R_co]]:
        return map(self.__getitem__, range(len(self.ids)))

    @overload
    def __getitem__(self, index: int) -> Handle[R_co]: ...
    @overload
    def __getitem__(self, index: slice) -> Handles[R_co]: ...
    def __getitem__(self, index: int | slice) -> Handle[R_co] | Handles[R_co]:
        outcomes = self._outcomes
        if isinstance(index, slice):
            return Handles(self.ids[index], outcomes and outcomes[index], self._hf, self._signature)
        return Handle(self.ids[index], outcomes[index] if outcomes else "created", self._hf, self._signature)

    def __repr__(self) -> str:
        jobs = f"{len(self):,} job{'' if len(self) == 1 else 's'}"
        return f"<{jobs} of task {self._signature.name!r}>"


def _has_ended(info: JobInfo) -> bool:
    return info.status.final


def _stored_result(info: JobInfo) -> Any:
    if info.status is Status.SUCCEEDED:
        return info.result
    error = info.last_error or {}
    why = f": {error.get('type')}: {error.get('message')}" if error else ""
    raise JobFailed(info, f"job {info.id} of task {info.task!r} is {info.status}{why}")
