"""The protocol between a worker and its child processes: msgpack arrays that start with a tag, each prefixed with its
length in four bytes. Payloads and results are JSON text inside them, which is not decoded on the way.

A new message is a Struct with its own tag, listed in ToChild or ToWorker and handled in `child.Child.serve` or
`processes.Processes._on_message`. A new field goes last and has a default.
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
    """One job. Module and task are names from the worker's code; everything else is data."""

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
    headers: str | None = None  # JSON text, because msgpack cannot hold every JSON number
    carried: dict[str, str] | None = None  # context of the worker's middleware (a trace, for example)


class Leave(msgspec.Struct, tag="leave", array_like=True):
    """No more jobs: the child ends."""


class Started(msgspec.Struct, tag="started", array_like=True, gc=False):
    """The handler is called now; sent when Run requests it."""

    number: int


class Progressed(msgspec.Struct, tag="progress", array_like=True, gc=False):
    """The handler's progress."""

    number: int
    done: float
    total: float | None
    message: str | None


class LogLine(msgspec.Struct, tag="line", array_like=True, gc=False):
    """A line that the handler wrote with ctx.log, to be stored with the job."""

    number: int
    level: str
    text: str


class Logged(msgspec.Struct, tag="log", array_like=True, gc=False):
    """A line for the worker's log, its fields as JSON."""

    number: int
    name: str
    level: int
    text: str
    fields: str


class JobDone(msgspec.Struct, tag="done", array_like=True, gc=False):
    """The outcome of a job; None if it succeeded without a result. `leaving` is why the child takes no other.

    The outcome's result is Raw JSON, so it is sent as a separate field.
    """

    number: int
    outcome: Outcome | None = None
    leaving: str | None = None
    result: bytes | None = None

    @classmethod
    def of(cls, number: int, outcome: Outcome | None, leaving: str | None) -> JobDone:
        """Build the message, with the result moved out of the outcome."""
        if outcome is None or outcome.result is None:
            return cls(number, outcome, leaving)
        result, outcome.result = bytes(outcome.result), None
        return cls(number, outcome, leaving, result)

    def outcome_of(self) -> Outcome | None:
        """Return the outcome with its result."""
        if self.outcome is not None and self.result is not None:
            self.outcome.result = msgspec.Raw(self.result)
        return self.outcome


ToChild = Setup | Run | Leave
ToWorker = Started | Progressed | LogLine | Logged | JobDone
in_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
in_worker: msgspec.msgpack.Decoder[ToWorker] = msgspec.msgpack.Decoder(ToWorker)


def pack(message: ToChild | ToWorker) -> bytes:
    """Encode a message with its length prefix."""
    data = _encode(message)
    return len(data).to_bytes(_HEAD, "big") + data


class Stream(Generic[T]):
    """Decodes messages from received bytes."""

    def __init__(self, decoder: msgspec.msgpack.Decoder[T]) -> None:
        self._decode = decoder.decode
        self._buffer = b""

    def feed(self, data: bytes) -> Iterator[T]:
        """Yield the messages that these bytes complete; raise DecodeError at the first invalid one."""
        data = self._buffer + data if self._buffer else data
        start = 0
        while (end := start + _HEAD + _size(data, start)) <= len(data):
            yield self._decode(data[start + _HEAD : end])
            start = end
        self._buffer = data[start:]


def _size(data: bytes, start: int) -> int:
    size = int.from_bytes(data[start : start + _HEAD], "big")
    if size > _LARGEST:  # a handler's stray output, read as a length, is a very large number
        raise msgspec.DecodeError(f"message too large: {size} bytes")
    return size
