"""What a worker and its child processes say to each other: msgpack arrays that open with their kind, each behind four
bytes of length. Payloads and results are JSON text in them, not looked at on the way.

Something new to say is a Struct with a tag of its own, named in ToChild or ToWorker and taken up in `child.Child.serve`
or `processes.Processes._hear`. A new field goes last and has a default.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from holdfast.model.outcome import Outcome

T = TypeVar("T")
_HEAD = 4
_LARGEST = 1 << 28
_encode = msgspec.msgpack.Encoder().encode


class Setup(msgspec.Struct, tag="setup", array_like=True):
    """The first message to a child: the settings its worker runs with."""

    settings: dict[str, Any]
    log_level: int = 20


class Run(msgspec.Struct, tag="run", array_like=True, gc=False):
    """One job. Module and task are names from the worker's code; what came from outside is data."""

    number: int
    module: str
    task: str
    payload: str
    job_id: str
    queue: str
    tenant: str | None
    priority: int
    attempt: int
    max_attempts: int
    token: int
    tell_start: bool
    batch: str | None = None
    headers: str | None = None  # as JSON: whatever numbers somebody may have put there
    carried: dict[str, str] | None = None  # what middleware wants the handler to find (a trace)


class Leave(msgspec.Struct, tag="leave", array_like=True):
    """No more jobs: the child ends."""


class Started(msgspec.Struct, tag="started", array_like=True, gc=False):
    """The handler is called now; sent when Run asks for it."""

    number: int


class Progressed(msgspec.Struct, tag="progress", array_like=True, gc=False):
    """What the handler says of its progress."""

    number: int
    done: float
    total: float | None
    message: str | None


class Logged(msgspec.Struct, tag="log", array_like=True, gc=False):
    """A line for the worker's log, its fields as JSON."""

    number: int
    name: str
    level: int
    text: str
    fields: str


class Done(msgspec.Struct, tag="done", array_like=True, gc=False):
    """What came of a job; no outcome is the common one, as in execute. `leaving` says why the child takes no other.

    The outcome's result is Raw JSON, so it travels beside it.
    """

    number: int
    outcome: Outcome | None = None
    leaving: str | None = None
    result: bytes | None = None

    @classmethod
    def of(cls, number: int, outcome: Outcome | None, leaving: str | None) -> Done:
        """To be sent."""
        if outcome is None or outcome.result is None:
            return cls(number, outcome, leaving)
        result, outcome.result = bytes(outcome.result), None
        return cls(number, outcome, leaving, result)

    def told(self) -> Outcome | None:
        """The outcome, put together again."""
        if self.outcome is not None and self.result is not None:
            self.outcome.result = msgspec.Raw(self.result)
        return self.outcome


ToChild = Setup | Run | Leave
ToWorker = Started | Progressed | Logged | Done
in_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
in_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def pack(message: ToChild | ToWorker) -> bytes:
    """A message as it travels."""
    data = _encode(message)
    return len(data).to_bytes(_HEAD, "big") + data


class Stream(Generic[T]):
    """Makes messages of the bytes that come."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._decode = decoder.decode
        self._held = b""

    def feed(self, data: bytes) -> Iterator[T]:
        """The messages that are complete with these bytes; DecodeError at the first that is none."""
        data = self._held + data if self._held else data
        start = 0
        while (end := start + _HEAD + _size(data, start)) <= len(data):
            yield self._decode(data[start + _HEAD : end])
            start = end
        self._held = data[start:]


def _size(data: bytes, start: int) -> int:
    size = int.from_bytes(data[start : start + _HEAD], "big")
    if size > _LARGEST:  # what a handler writes here by mistake reads as a very large number
        raise msgspec.DecodeError(f"a message of {size} bytes")
    return size
