"""Run the function of a step in a process of its own, which ends with the call: for code that crashes, or that cannot
be stopped otherwise. Arguments and result are JSON by the function's annotations, as for a task."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.client.task import module_of
from holdfast.errors import HoldfastError, UsageError
from holdfast.model.outcome import describe
from holdfast.model.signature import Signature

_MOST = 1 << 28  # bytes and levels: the caller checks the limits of results
BOOT = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from holdfast.worker.stepprocess import main; main()"


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

    def run(self) -> Any:
        """Return the function's result; blocks this thread."""
        import json

        # A file, not a pipe: nothing reads while the process runs, and a full pipe would stop it.
        command = [sys.executable, "-u", "-c", BOOT, json.dumps(sys.path), self._module, self._name]
        try:
            with tempfile.TemporaryFile() as answer:
                number = answer.fileno()
                self._popen = subprocess.Popen(
                    [*command, str(number)], stdin=subprocess.PIPE, stdout=2, pass_fds=[number], start_new_session=True
                )
                self._popen.communicate(self._payload, self._timeout)
                answer.seek(0)
                data = answer.read()
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"step process {self._name} took longer than {self._timeout:g} s") from None
        finally:
            self.kill()
        return self._result(data)

    def kill(self) -> None:
        """Kill the process."""
        if self._popen is not None and self._popen.returncode is None:
            self._popen.kill()
            self._popen.wait()

    def _result(self, data: bytes) -> Any:
        if not data:
            code = self._popen.returncode if self._popen else None
            raise StepProcessFailed(f"the process of {self._name} ended with {code} and without a result")
        answer = msgspec.json.decode(data)
        if "error" in answer:
            error = answer["error"]
            raise StepProcessFailed(f"{error['type']}: {error['message']}", error.get("code"))
        return self._signature.result.read(answer["result"])


def main() -> None:
    """Call the function that the parent names, and write its result; runs in the child."""
    import importlib

    from holdfast.client import Task

    _, _, module, name, write = sys.argv
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
