"""The dashboard over a large database: `python -m bench.pages [--millions 5] [--viewers 50] [--keep FOLDER]`.

Fills an embedded PostgreSQL with 5 million waiting jobs, 5 million in history and 1 million dead ones, of 10,000
tenants and with 10,000 limits. A worker takes jobs of one queue and does the upkeep. Prints for each page and API
route the time of the response, and for each statement of the service the time in the server, from its log. Then so
many viewers look at the front page for a minute.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg

from holdfast import Holdfast, Limit
from holdfast.store.dev.embedded import EmbeddedPostgres

PAGES = """
    / /jobs /jobs?status=dead /jobs?status=succeeded /jobs?status=queued&queue=mail /jobs?task=task-3
    /jobs?tenant=tenant-77 /jobs?status=succeeded&tenant=tenant-77 /jobs?status=queued&tenant=tenant-77
    /jobs?args=%7B%22n%22%3A1%7D /jobs?args=%7B%22n%22%3A2%7D /dead /dead/kind-3 /queues /tasks /tenants /limits
    /limits?busy=true /limits?prefix=domain:77 /limits/key?key=domain:70.example /batches /schedules /workers
    /outbox /webhooks /usage /audit /tokens /v1/figures /v1/metrics /v1/jobs /v1/queues
    /v1/jobs?status=dead&limit=100 /v1/errors
"""
WINDOW, TURNS = 8.0, 3  # seconds in which a worker is watched, with and without viewers
LOOKS = 100  # at each page, besides the first
SETTINGS = {
    "log_min_duration_statement": "0",
    "max_wal_size": "8GB",
    "shared_buffers": "1GB",
    "checkpoint_timeout": "30min",
    "timezone": "UTC",
}
PARTS = {
    "status": 2,
    "tiles": 2,
    "queues": 2,
    "failing": 5,
    "holding": 5,
    "system": 5,
    "graphs": 10,
}  # seconds; live.js
STATEMENT = re.compile(r"^-- (.+)\n((?:[^\n-].*\n)+)", re.MULTILINE)
LINE = re.compile(r"duration: ([\d.]+) ms  (?:statement|execute [^:]*): (.*)")


def make_application(dsn: str) -> Holdfast:
    hf = Holdfast(dsn)

    @hf.task(name="task-0", queue="idle", limits=[Limit("domain:{domain}", concurrency=2)])
    async def visit(domain: str) -> None: ...

    @hf.task(name="noop", queue="fast")
    async def noop() -> None: ...

    return hf


hf = make_application(os.environ.get("HOLDFAST_DSN", "embedded:./.holdfast"))  # for the worker and the service


def fill(dsn: str, jobs: int) -> None:
    """Insert the jobs and what belongs to them."""
    with make_application(dsn) as app:
        app.migrate()
        app.tick()  # registers the limits
        for n in range(100):
            app.webhooks.add(f"https://customer{n}.example/hook", tenant=f"tenant-{n}")
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=holdfast -c holdfast.announces=on") as conn:
        conn.execute(f"create function pg_temp.jobs() returns integer language sql return {jobs}")
        for what, statement in STATEMENT.findall(Path(__file__).with_suffix(".sql").read_text()):
            began = time.monotonic()
            rows = conn.execute(statement).rowcount
            print(f"{what}: {rows:,} rows in {time.monotonic() - began:.0f} s", flush=True)
        conn.execute("analyze")


@contextlib.contextmanager
def running(dsn: str, *command: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command of the application."""
    env = os.environ | {"HOLDFAST_DSN": dsn}
    line = [sys.executable, "-m", "holdfast.cli", command[0], "bench.pages:hf", *command[1:]]
    with subprocess.Popen(line, env=env, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://127\.0\.0\.1:\d+", line):
            threading.Thread(target=process.stderr.read, daemon=True).start()
            return found[0]
    raise AssertionError("the service did not start")


def paths(dsn: str) -> list[str]:
    """Return the pages to look at, with filters that match few and many jobs."""
    with psycopg.connect(dsn, options="-c search_path=holdfast") as conn:
        some = {
            name: conn.execute(f"select id from {table} limit 1 offset 1000").fetchall()[0][0]
            for name, table in (("waiting", "live"), ("done", "history"), ("dead", "dead"))
        }
    return [*PAGES.split(), *[f"/jobs/{each}" for each in some.values()]]


def take(base: str, path: str, headers: dict[str, str]) -> tuple[float, int, int]:
    """Return seconds, status and size of a response."""
    request = urllib.request.Request(base + path, headers=headers)  # noqa: S310  the service on loopback
    began = time.perf_counter()
    try:
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
            size, status = len(response.read()), response.status
    except urllib.error.HTTPError as error:
        size, status = len(error.read()), error.code
    return time.perf_counter() - began, status, size


def look(base: str, every: Sequence[str], headers: dict[str, dict[str, str]]) -> None:
    """Look at each page by turns; print the median, the 99th percentile and the most."""
    took: dict[str, list[float]] = defaultdict(list)
    seen: dict[str, tuple[int, int]] = {}
    for _ in range(1 + LOOKS):
        for path in every:
            seconds, *seen[path] = take(base, path, headers["api" if path.startswith("/v1") else "page"])  # type: ignore[assignment]
            took[path].append(seconds)
        time.sleep(0.1)
    print(f"{'page':48} {'status':>6} {'kB':>6} {'p50':>7} {'p99':>7} {'first':>7}  ms")
    for path, each in took.items():
        status, size = seen[path]
        ordered = sorted(each[1:])
        p50, p99 = (ordered[int(len(ordered) * share)] * 1000 for share in (0.5, 0.99))
        mark = " <<<" if p99 > 50 else ""
        print(f"{path[:48]:48} {status:6} {size / 1000:6.1f} {p50:7.1f} {p99:7.1f} {each[0] * 1000:7.1f}{mark}")


def statements(log: Path, since: int) -> dict[str, list[float]]:
    """Return the milliseconds of each statement in the server's log from an offset on."""
    found: dict[str, list[float]] = defaultdict(list)
    with log.open(errors="replace") as lines:
        lines.seek(since)
        for line in lines:
            if match := LINE.search(line):
                found[" ".join(match[2].split())[:110]].append(float(match[1]))
    return found


def report(found: dict[str, list[float]], seconds: float) -> None:
    """Print the slowest statements, and how many there were a second."""
    slowest = sorted(found.items(), key=lambda item: -max(item[1]))[:25]
    for text, each in slowest:
        ordered = sorted(each)
        print(
            f"{len(each):6} x  p50 {ordered[len(each) // 2]:8.2f}  p99 {ordered[int(len(each) * 0.99)]:8.2f} ms  {text}"
        )
    total = sum(len(each) for each in found.values())
    print(f"{total / seconds:.2f} statements a second")


def cpu(pid: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def follow(base: str, headers: dict[str, str], until: float) -> None:
    """Look at the front page as a browser does: follow the stream and fetch the parts whose time has come."""
    take(base, "/", headers)
    page = urllib.request.Request(base + "/live", headers=headers)  # noqa: S310
    taken = dict.fromkeys(PARTS, time.monotonic())
    with contextlib.suppress(OSError), urllib.request.urlopen(page, timeout=30) as stream:  # noqa: S310
        while (now := time.monotonic()) < until:
            if not stream.readline().startswith(b"data:"):
                continue
            if due := [part for part, every in PARTS.items() if now - taken[part] >= every]:
                take(base, f"/?fragment={','.join(due)}", headers)
                taken |= dict.fromkeys(due, now)


def viewers(base: str, headers: dict[str, str], number: int, seconds: float) -> None:
    began = time.monotonic()
    each = [threading.Thread(target=follow, args=(base, headers, began + seconds)) for _ in range(number)]
    for thread in each:
        thread.start()
    for thread in each:
        thread.join()


def beside_a_worker(dsn: str, look: Callable[[], None]) -> None:
    """Print the rate of a worker without and with viewers, by turns."""
    with psycopg.connect(dsn, autocommit=True, options="-c search_path=holdfast") as conn:
        ended = "select coalesce(sum(ended), 0) from attempt_counts where queue = 'fast'"
        rates: dict[bool, list[float]] = {False: [], True: []}
        for turn in range(2 * TURNS):
            conn.execute(
                "insert into live (id, task, queue) select uuid7(), 'noop', 'fast' from generate_series(1, 2000000)"
            )
            with running(dsn, "worker", "--queues", "fast"):
                time.sleep(3)
                (before,), began = conn.execute(ended).fetchall()[0], time.monotonic()
                look() if turn % 2 else time.sleep(WINDOW)
                (after,) = conn.execute(ended).fetchall()[0]
                rates[bool(turn % 2)].append(int(after - before) / (time.monotonic() - began))
            conn.execute("delete from live where queue = 'fast'")
        shown = [", ".join(f"{each:,.0f}" for each in rates[with_viewers]) for with_viewers in (False, True)]
        print(f"a worker's jobs a second without viewers: {shown[0]}; with them: {shown[1]}")


def signed_in(base: str, token: str) -> dict[str, str]:
    """Sign in as a browser does and return the cookies as a header."""
    import http.cookiejar
    import urllib.parse

    jar = http.cookiejar.CookieJar()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    page = browser.open(f"{base}/sign-in").read().decode()
    csrf = re.search(r'name="csrf" value="([^"]+)"', page)
    assert csrf is not None
    form = urllib.parse.urlencode({"csrf": csrf[1], "token": token}).encode()
    browser.open(f"{base}/sign-in", form).read()
    return {"Cookie": "; ".join(f"{each.name}={each.value}" for each in jar)}


def main() -> None:
    parser = argparse.ArgumentParser("python -m bench.pages", description=__doc__)
    parser.add_argument("--millions", type=float, default=5.0)
    parser.add_argument("--viewers", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--keep", metavar="FOLDER", help="where the server's data stays, and is found again")
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with tempfile.TemporaryDirectory(prefix="holdfast-pages-") as temporary:
        folder = Path(given.keep or temporary)
        new = not (folder / "data").exists()
        with EmbeddedPostgres(folder / "data", settings=SETTINGS) as server:
            if new:
                fill(server.dsn(), int(given.millions * 1_000_000))
            measure(server, given)


def measure(server: EmbeddedPostgres, given: argparse.Namespace) -> None:
    dsn = server.dsn()
    log = server.log
    with make_application(dsn) as app:
        token, _ = app.tokens.create(
            f"bench-{os.getpid()}", tenant=None, scopes=["operate", "jobs:read", "jobs:write", "admin", "webhooks:read"]
        )
    with running(dsn, "worker", "--queues", "idle"), running(dsn, "serve", "--port", "0") as service:
        base = address(service)
        headers = {"page": signed_in(base, token), "api": {"Authorization": f"Bearer {token}"}}
        time.sleep(5)
        since, began = log.stat().st_size, time.monotonic()
        look(base, paths(dsn), headers)
        report(statements(log, since), time.monotonic() - began)
        since, used, began = log.stat().st_size, cpu(service.pid), time.monotonic()
        viewers(base, headers["page"], given.viewers, given.seconds)
        seconds = time.monotonic() - began
        print(f"{given.viewers} viewers for {seconds:.0f} s: {(cpu(service.pid) - used) / seconds:.1%} of a core")
        report(statements(log, since), seconds)
        beside_a_worker(dsn, lambda: viewers(base, headers["page"], given.viewers, WINDOW))
    print(json.dumps({"loads": os.getloadavg()}))


if __name__ == "__main__":
    main()
