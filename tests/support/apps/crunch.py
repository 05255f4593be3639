"""Process tasks for the tests: what a child process runs must be importable, so it cannot be written inside a test."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from holdfast import CONTEXT, Breaker, Cancel, Context, Dead, Fail, Holdfast, Limit, Retry, RetryLater, Snooze

hf = Holdfast()
ONCE = Retry.none()
kept: list[bytes] = []


@hf.task(runner="process")
def add(a: int, b: int = 2) -> dict[str, int]:
    return {"sum": a + b}


@hf.task(runner="process", retry=ONCE)
async def add_async(a: int, b: int) -> int:
    await asyncio.sleep(0)
    return a + b


@hf.task(runner="process", retry=ONCE)
async def loop_id() -> int:
    return id(asyncio.get_running_loop())


@hf.task(runner="process")
def whoami(n: int = 0) -> int:
    return os.getpid()


@hf.task(runner="process", retry=Retry.fixed(1, max_attempts=3), priority=1)
def context(n: int, *, ctx: Context = CONTEXT) -> list[Any]:
    return [ctx.job_id, ctx.task, ctx.queue, ctx.tenant, ctx.priority, ctx.attempt, ctx.max_attempts, ctx.token > 0]


@hf.task(runner="process")
def context_first(ctx: Context, n: int) -> str:
    return ctx.job_id


class Blocked(Exception):
    code = "HTTP_403"


@hf.task(runner="process", retry=Retry.fixed(60).on(dead=["HTTP_403"], fail=[LookupError]))
def raise_named(name: str) -> None:
    print("about to raise", name)
    try:
        raise ValueError("the cause")
    except ValueError as error:
        raise {"blocked": Blocked, "lookup": KeyError, "other": RuntimeError}[name](f"because of {name}") from error


@hf.task(
    runner="process", retry=ONCE, limits=[Limit("domain:{domain}", breaker=Breaker(on=["HTTP_403", "PROCESS_DIED"]))]
)
def fetch(domain: str, name: str) -> None:
    if name == "exit":
        os._exit(3)
    raise {"blocked": Blocked, "lookup": KeyError}[name]


VERDICTS: dict[str, Exception] = {
    "later": RetryLater(90, code="HTTP_429"),
    "fail": Fail("no", code="BAD_INPUT"),
    "dead": Dead("captcha", code="BLOCKED"),
    "snooze": Snooze(60),
    "cancel": Cancel("not wanted"),
}


@hf.task(runner="process", retry=Retry.fixed(1))
def verdict(name: str) -> None:
    raise VERDICTS[name]


@hf.task(runner="process", retry=ONCE)
def leave(code: int) -> None:
    sys.exit(code)


@hf.task(runner="process", retry=ONCE, timeout=1)
def endless(file: str) -> None:
    note(file)
    while True:
        pass


@hf.task(runner="process", retry=ONCE)
def sit(file: str, stubborn: bool = False) -> None:
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    note(file)
    time.sleep(60)


@hf.task(runner="process", retry=ONCE)
def sit_until_signaled(file: str) -> None:
    """Finish in good order on SIGTERM."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    note(file)
    stop.wait(60)
    note(file + ".end")


@hf.task(runner="process", retry=ONCE)
def leave_a_thread() -> int:
    """Leave a thread that would keep the process from ending."""
    threading.Thread(target=time.sleep, args=(60,)).start()
    return os.getpid()


@hf.task(runner="process", retry=ONCE)
def sit_without_the_kernels_help(file: str) -> None:
    """Undo what makes Linux kill the child when its worker dies."""
    ctypes.CDLL(None).prctl(1, 0)
    note(file)
    time.sleep(60)


@hf.task(runner="process", retry=ONCE)
def sit_on_the_lock(file: str) -> None:
    """Hold the interpreter's lock, so that no thread of the child can run."""
    note(file)
    ctypes.PyDLL(None).sleep(60)


@hf.task(runner="process", retry=ONCE)
def nap(seconds: float) -> None:
    time.sleep(seconds)


@hf.task(runner="process", retry=ONCE, timeout=2)
def nap_briefly(seconds: float) -> None:
    time.sleep(seconds)


@hf.task(runner="process", retry=ONCE)
def with_company(file: str) -> None:
    """Start another program and wait for it."""
    company = subprocess.Popen(["sleep", "60"])
    note(file, company.pid)
    company.wait()


@hf.task(runner="process", retry=ONCE)
def crash_with_company(file: str) -> None:
    company = subprocess.Popen(["sleep", "60"])
    note(file, company.pid)
    os._exit(7)


@hf.task(runner="process")
def grow(megabytes: int) -> int:
    kept.append(bytearray(megabytes << 20))
    return os.getpid()


@hf.task(runner="process")
def large(size: int) -> str:
    return "x" * size


@hf.task(runner="process", retry=ONCE)
def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels):
        value = [value]
    return value


@hf.task(runner="process", retry=ONCE)
def takes(text: str) -> int:
    return len(text)


@hf.task(runner="process", retry=ONCE)
def chatter(lines: int, fail: bool) -> None:
    for n in range(lines):
        print(f"line {n}", "x" * 100, file=sys.stderr if n % 2 else sys.stdout)
    if fail:
        raise RuntimeError("at the end")


@hf.task(runner="process", retry=ONCE)
def garbage() -> None:
    os.write(1, bytes(range(256)) * 20 + b"the end\n")
    raise RuntimeError("after garbage")


@hf.task(runner="process", retry=ONCE)
def close_output(how: str) -> int:
    if how == "object":
        sys.stdout.close()
        sys.stderr.close()
    else:
        os.close(1)
        os.close(2)
    return os.getpid()


@hf.task(runner="process", retry=ONCE)
def talk_and_fail(text: str) -> None:
    print(text)
    raise RuntimeError("talked")


@hf.task(runner="process")
def odd() -> object:
    return object()


@hf.task(runner="process", retry=ONCE)
def exit_now(code: int) -> None:
    print("last words")
    os._exit(code)


@hf.task(runner="process", retry=ONCE)
def segfault() -> None:
    ctypes.string_at(0)


@hf.task(runner="process", retry=ONCE)
def allocate(megabytes: int) -> None:
    kept.append(bytearray(megabytes << 20))


@hf.task(runner="process", retry=ONCE)
def close_everything() -> None:
    os.closerange(3, 256)


@hf.task(runner="process", retry=ONCE)
def babble() -> None:
    """Write to every descriptor it has not opened, as a faulty program may."""
    for number in range(3, 256):
        try:
            os.write(number, b"hello, hello, hello")
        except OSError:
            continue
    time.sleep(60)


@hf.task(runner="process", retry=ONCE)
def shut_down() -> None:
    for number in range(3, 256):
        try:
            socket.socket(fileno=os.dup(number)).shutdown(socket.SHUT_RDWR)
        except OSError:
            continue
    time.sleep(60)


@hf.task(runner="process", retry=ONCE)
def fork_and_return() -> str:
    return "copy" if os.fork() == 0 else "original"


@hf.task(runner="process", retry=ONCE)
def asks_the_system() -> dict[str, Any]:
    return {
        "session": os.getsid(0) == os.getpid(),
        "term": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
        "stdin": os.path.samestat(os.fstat(0), os.stat(os.devnull)),
        "main": threading.current_thread() is threading.main_thread(),
        "dsn": hf.settings.dsn,
        "argv": sys.argv[1:],
    }


@hf.task(runner="process", retry=ONCE)
def enqueues(n: int) -> str:
    return add.enqueue(n).id


def note(file: str, *more: int) -> None:
    """Record the process in one write."""
    with open(file + ".part", "w") as out:
        out.write(" ".join(map(str, (os.getpid(), *more))))
    os.rename(file + ".part", file)


@hf.resource
def model() -> Iterator[dict[str, int]]:
    print("model opened")
    yield {"weights": os.getpid()}


@hf.task(runner="process")
def with_model(n: int, *, weights: dict[str, int] = model.value) -> int:
    return weights["weights"]


@hf.resource
def notes() -> Iterator[list[str]]:
    """Yield files to be written when it is closed."""
    files: list[str] = []
    yield files
    for file in files:
        note(file)


@hf.task(runner="process", retry=ONCE)
def notes_its_close(file: str, *, files: list[str] = notes.value) -> int:
    files.append(file)
    return os.getpid()


@hf.task(runner="process")
def counts(*, ctx: Context = CONTEXT) -> list[Any]:
    for n in range(1000):
        ctx.progress(n, 1000, f"row {n}")
    return [ctx.batch_id, ctx.headers, ctx.canceled]


@hf.task(runner="process", retry=ONCE)
def wrong_progress(*, ctx: Context = CONTEXT) -> None:
    ctx.progress("half")  # type: ignore[arg-type]


@hf.task(runner="process", retry=Retry.fixed(0, max_attempts=3))
def insert(n: int, fails: bool = False, *, ctx: Context = CONTEXT) -> str:
    with ctx.transaction() as conn:
        conn.execute("insert into public.ledger values (%s)", [n])
        if fails and ctx.attempt == 1:
            raise ValueError("not yet")
        ctx.set_result("inserted")
    return "ignored"


@hf.task(runner="process", retry=ONCE)
def insert_and_set_result(n: int, *, ctx: Context = CONTEXT) -> None:
    with ctx.transaction() as conn:
        conn.execute("insert into public.ledger values (%s)", [n])
    ctx.set_result("set after")


@hf.task(runner="process", retry=ONCE)
async def insert_async(n: int, *, ctx: Context = CONTEXT) -> str:
    async with ctx.transaction() as conn:
        await conn.execute("insert into public.ledger values (%s)", [n])
    return "returned"


@hf.task(runner="process", retry=ONCE)
def sleeps(path: str) -> None:
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    time.sleep(60)


@hf.task(runner="process")
def talks(*, ctx: Context = CONTEXT) -> None:
    ctx.log.info("sent %s", 3, extra={"fields": {"to": "ada"}})
    ctx.log.debug("nobody listens")
    ctx.log("stored only")


@hf.task(runner="process", retry=ONCE)
def write_for_ever(text: str) -> None:
    """Leave a thread behind that writes on."""

    def write() -> None:
        while True:
            print(text, flush=True)
            time.sleep(0.005)

    threading.Thread(target=write, daemon=True).start()
