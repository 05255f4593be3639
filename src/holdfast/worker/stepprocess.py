"""Run the function of a step in a process of its own, which ends with the call: for code that crashes, or that cannot
be stopped otherwise. Arguments and result are JSON by the function's annotations, as for a task."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.client.task import module_of
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.outcome import describe
from holdfast.model.signature import Signature
from holdfast.worker.parent import die_with

_MOST = 1 << 28  # bytes and levels: the caller checks the limits of results
_MAIN = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from holdfast.worker.stepprocess import main; main()"
BOOT = [sys.executable, "-u", "-c", _MAIN]


class StepProcessFailed(HoldfastError):
    """The function of a step raised in its process, or the process ended. `code` is the exception's, if it has one."""

    def __init__(self, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code


class StepProcess:
    """One call of a function."""

    def __init__(
        self, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], timeout: float | None
    ) -> None:
        place = getattr(function, "__qualname__", "")
        if not place or "." in place or place.endswith("<lambda>"):
            raise UsageError(f"runner='process' needs a function at the top level of a module, got {function!r:.80}")
        self._name = place
        self._module = module_of(function)
        self._signature = Signature(place, function)
        self._payload = self._signature.encode(args, kwargs, _MOST, 1000)
        self._timeout = timeout
        self._popen: subprocess.Popen[bytes] | None = None
        self._killed = False

    def run(self) -> Any:
        """Return the function's result; blocks this thread."""
        import json

        # A file, not a pipe: nothing reads while the process runs, and a full pipe would stop it.
        with tempfile.TemporaryFile() as answer, _lifeline() as (lifeline, close):
            numbers = [answer.fileno(), lifeline]
            command = [*BOOT, json.dumps(sys.path), self._module, self._name, str(os.getpid()), *map(str, numbers)]
            if self._killed:
                raise StepProcessFailed(f"the process of {self._name} was canceled before it began")
            self._popen = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=2, pass_fds=numbers, start_new_session=True
            )
            close()
            self._wait(self._popen)
            answer.seek(0)
            return self._result(answer.read())

    def _wait(self, popen: subprocess.Popen[bytes]) -> None:
        if self._killed:  # while it was started
            self.kill()
        try:
            popen.communicate(self._payload, self._timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"step process {self._name} took longer than {self._timeout:g} s") from None
        finally:
            self.kill()
            popen.wait()

    def kill(self) -> None:
        """Kill the process and all that it has started, or prevent its start. Safe to call from any thread."""
        self._killed = True
        if self._popen is not None and self._popen.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # it has just ended
                os.killpg(self._popen.pid, signal.SIGKILL)

    def _result(self, data: bytes) -> Any:
        if not data:
            code = self._popen.returncode if self._popen else None
            raise StepProcessFailed(f"the process of {self._name} ended with {code} and without a result")
        answer = msgspec.json.decode(data)
        if "error" in answer:
            error = answer["error"]
            raise StepProcessFailed(f"{error['type']}: {error['message']}", error.get("code"))
        return self._signature.result.read(answer["result"])


@contextlib.contextmanager
def _lifeline() -> Iterator[tuple[int, Callable[[], None]]]:
    """Open a pipe whose end of file tells the process that this one is gone (parent.py); yield its read end, and what
    closes that here."""
    read, write = os.pipe()
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, write)
        with contextlib.ExitStack() as reading:
            reading.callback(os.close, read)
            yield read, reading.close


def main() -> None:
    """Call the function that the parent names, and write its result; runs in the child."""
    import importlib

    from holdfast.client import Task

    _, _, module, name, parent, write, lifeline = sys.argv
    for number in (int(write), int(lifeline)):
        os.set_inheritable(number, False)  # programs that the function starts must not keep them open
    die_with(int(parent), int(lifeline))
    found = getattr(importlib.import_module(module), name)
    function = found.handler if isinstance(found, Task) else found
    signature = Signature(name, function)
    try:
        args, kwargs = signature.decode(sys.stdin.buffer.read())
        value = function(*args, **kwargs)
        if asyncio.iscoroutine(value):
            value = asyncio.run(value)
        answer = b'{"result":' + signature.result.write(value, f"the result of {name}") + b"}"
    except BaseException as error:
        answer = msgspec.json.encode({"error": describe(error, 10_000)})
    with open(int(write), "wb") as file:
        file.write(answer)
