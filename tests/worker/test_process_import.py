"""Modules that a child process must import for its jobs, and cannot, or should not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import ConfigurationError, Holdfast, Status
from holdfast.client.database import Database
from holdfast.settings import Settings
from tests.support.children import last_error
from tests.support.running import ended, working
from tests.support.workers import APPS

sys.path.append(str(APPS))
import crunch


@pytest.fixture
def broken(dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module that imports where it is first imported, and runs the given code in a child process."""
    monkeypatch.syspath_prepend(tmp_path)
    modules: list[str] = []

    def make(name: str, in_child: str) -> Any:
        (tmp_path / f"{name}.py").write_text(
            f"import os, sys\nfrom holdfast import Holdfast, Retry\nif os.getpid() != {os.getpid()}:\n    {in_child}\n"
            "hf = Holdfast()\n"
            "@hf.task(runner='process', timeout=1, retry=Retry.fixed(0.05, max_attempts=2))\n"
            "def work() -> None: ...\n"
        )
        module = __import__(name)
        module.hf.database = Database(Settings.load(dsn=dsn))
        modules.append(name)
        return module

    yield make
    for name in modules:
        sys.modules.pop(name).hf.close()


@pytest.mark.parametrize(
    ("what", "word"),
    [
        ("import surely_not_there", "cannot import 'broken_{n}': ModuleNotFoundError: No module named 'surely_not"),
        ("sys.exit('not today')", "cannot import 'broken_{n}': SystemExit: not today"),
        ("os._exit(4)", "exited with code 4 before the job started, while importing 'broken_{n}'"),
        ("Holdfast.task = lambda *a, **k: lambda f: f", "'broken_{n}' has no task 'broken_{n}.work'"),
    ],
)
async def test_a_module_that_a_child_cannot_import_fails_its_jobs_and_nothing_spins(
    broken: Any, request: pytest.FixtureRequest, what: str, word: str
) -> None:
    number = abs(hash(what))
    module = broken(f"broken_{number}", what)
    async with working(module.hf, child_processes=1):
        info = await ended(module.hf, (await module.work.aenqueue()).id)
    assert (info.status, info.attempts) == (Status.DEAD, 2)
    assert word.format(n=number) in last_error(info)["message"]


async def test_the_timeout_does_not_count_the_import(broken: Any) -> None:
    module = broken("slow_import", "import time; time.sleep(1.5)")
    async with working(module.hf, child_processes=1):
        assert (await ended(module.hf, (await module.work.aenqueue()).id)).status is Status.SUCCEEDED


async def test_a_memory_limit_too_low_to_start_with_is_reported(broken: Any) -> None:
    module = broken("hungry_app", "hoard = bytearray(1 << 28)")
    async with working(module.hf, child_processes=1, process_memory=24):
        error = last_error(await ended(module.hf, (await module.work.aenqueue()).id))
    assert "'hungry_app'" in error["message"] and "may use 24 MB (process_memory)" in error["message"]


async def test_a_module_that_starts_a_worker_when_imported_is_refused(broken: Any) -> None:
    module = broken(
        "eager_app",
        "import asyncio; from holdfast.worker import Worker; asyncio.run(Worker(Holdfast('postgresql://x')).run())",
    )
    async with working(module.hf, child_processes=1):
        info = await ended(module.hf, (await module.work.aenqueue()).id)
    assert "must not run a worker when it is imported" in last_error(info)["message"]


def test_a_runner_that_does_not_fit_is_refused_by_name() -> None:
    hf = Holdfast("postgresql://nowhere")

    async def asynchronous() -> None: ...
    def plain() -> None: ...

    assert hf.task(name="a")(asynchronous).runner == "async"
    assert hf.task(name="b")(plain).runner == "thread"
    assert hf.task(name="c", runner="async")(asynchronous).runner == "async"
    with pytest.raises(ConfigurationError, match="'d' has runner 'async', but its handler is not a coroutine"):
        hf.task(name="d", runner="async")(plain)
    with pytest.raises(ConfigurationError, match="'e' has runner 'thread', but its handler is a coroutine"):
        hf.task(name="e", runner="thread")(asynchronous)
    with pytest.raises(ConfigurationError, match="'f' has runner 'proces'; it must be 'async', 'thread' or 'process'"):
        hf.task(name="f", runner="proces")(plain)  # type: ignore[arg-type]


def test_a_process_handler_must_be_a_function_that_a_child_can_import() -> None:
    hf = Holdfast("postgresql://nowhere")

    def inside() -> None: ...

    with pytest.raises(ConfigurationError, match=r"'g' has runner 'process', but .* inside something else .*importing"):
        hf.task(name="g", runner="process")(inside)
    with pytest.raises(ConfigurationError, match="is a lambda"):
        hf.task(name="h", runner="process")(lambda: None)
    assert hf.task(name="i", runner="process")(crunch.add.handler).runner == "process"


PROGRAM = """
import asyncio
from holdfast import Holdfast
from holdfast.worker import Worker
hf = Holdfast()

@hf.task(runner="process")
def double(n: int) -> int:
    return 2 * n

async def main() -> None:
    worker = Worker(hf)
    running = asyncio.create_task(worker.run())
    print(await (await double.aenqueue(21)).aresult(40))
    worker.stop()
    await running
    await hf.aclose()

if __name__ == "__main__":
    asyncio.run(main())
"""


def test_the_tasks_of_a_program_that_is_run_as_a_file_are_found(dsn: str, tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "program.py").write_text(PROGRAM)
    command = [sys.executable, "scripts/program.py"]
    env = os.environ | {"HOLDFAST_DSN": dsn}
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.returncode) == ("42\n", 0), done.stderr
