"""The cost of hostile clients: CPU and memory of the service's process, and how long another tenant waits meanwhile.

    HOLDFAST_DSN=postgresql://... python bench/doors.py ["900 streams" ...]

The database must be migrated. This starts `holdfast serve` and repeats each attack for some seconds, while another
process reads a job 50 times a second as another tenant. Linux only, because it reads /proc.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

from holdfast import Holdfast

PORT = int(os.environ.get("DOORS_PORT", "18439"))
MB = 1_048_576
LARGE = 8 * MB - 200
SECONDS = 3.0  # minimum duration of each attack
Attack = Callable[[dict[str, str]], None]


def request(method: str, path: str, token: str = "", body: bytes | None = None) -> tuple[int, bytes]:
    conn = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        conn.request(method, path, body, headers)
        response = conn.getresponse()
        return response.status, response.read()
    except OSError:
        return 0, b""
    finally:
        conn.close()


def stream(head: bytes, piece: bytes, pieces: int) -> None:
    """Send a head and then pieces until the service closes the connection."""
    with socket.create_connection(("127.0.0.1", PORT)) as sock:
        try:
            sock.sendall(head)
            for _ in range(pieces):
                sock.sendall(piece)
        except OSError:
            pass


def repeated(value: bytes, size: int = LARGE) -> bytes:
    return b"[" + b",".join([value] * (size // (len(value) + 1))) + b"]"


def posting(body: bytes, path: str = "/v1/jobs", who: str = "") -> Attack:
    return lambda tokens: void(request("POST", path, tokens.get(who, ""), body))


def void(_: object) -> None: ...


def job(args: bytes) -> bytes:
    return b'{"task":"holdfast_bench.any","delay":9999,"args":{"x":' + args + b"}}"


def many(args: bytes, count: int) -> bytes:
    return b'{"jobs":[' + b",".join([job(args)] * count) + b"]}"


def half_requests(head: bytes, count: int) -> Attack:
    def attack(tokens: dict[str, str]) -> None:
        socks = [socket.create_connection(("127.0.0.1", PORT)) for _ in range(count)]
        for sock in socks:
            sock.sendall(head)
        time.sleep(SECONDS)
        for sock in socks:
            sock.close()

    return attack


def listing(tokens: dict[str, str]) -> None:
    for _ in range(5):
        request("POST", "/v1/jobs", tokens["evil"], job(b'"' + b"x" * (MB - 100) + b'"'))
    request("GET", "/v1/jobs?limit=500", tokens["evil"])


def streams(tokens: dict[str, str]) -> None:
    made = request("POST", "/v1/jobs", tokens["evil"], job(b"1"))[1]
    path = f"/v1/jobs/{json.loads(made)['id']}/events"
    head = f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {tokens['evil']}\r\n\r\n"
    half_requests(head.encode(), 900)(tokens)


STRANGERS: dict[str, Attack] = {
    "8 MB of objects": posting(repeated(b"{}")),
    "8 MB of long integers": posting(repeated(b"9" * 4300)),
    "8 MB of keys": posting(b"{" + b",".join(b'"%d":0' % n for n in range(LARGE // 11)) + b"}"),
    "8 MB to the tick endpoint": posting(repeated(b"1e308"), "/v1/tick"),
    "64 MB header": lambda tokens: stream(b"GET / HTTP/1.1\r\nHost: x\r\nX: ", b"a" * 65_536, 1024),
    "a million header fields": lambda tokens: stream(b"GET / HTTP/1.1\r\nHost: x\r\n", b"a: b\r\n" * 1000, 1000),
    "64 MB in chunks": lambda tokens: stream(
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"10000\r\n" + b"x" * 65_536 + b"\r\n",
        1024,
    ),
    "64 MB of a chunk's extension": lambda tokens: stream(
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x" * 65_536, 1024
    ),
    "10,000 requests at once": lambda tokens: stream(
        b"", b"GET /v1/health/live HTTP/1.1\r\nHost: x\r\n\r\n" * 1000, 10
    ),
    "2,500 half headers": half_requests(b"GET / HTTP/1.1\r\nHost: x\r\nX: ", 2500),
    "40 bodies but for a byte": half_requests(
        b"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % LARGE + b"x" * (LARGE - 1), 40
    ),
}
TENANTS: dict[str, Attack] = {
    "7 jobs of 1 MB of 1e308": posting(many(repeated(b"1e308", MB - 300), 7), "/v1/jobs/many", "evil"),
    "400 jobs of 1e308, as many as fit": posting(many(repeated(b"1e308", 3000 * 6), 400), "/v1/jobs/many", "evil"),
    "a job of 1 MB of objects": posting(job(repeated(b"{}", MB - 300)), who="evil"),
    "a job of 1 MB, nested 90 deep": posting(job(repeated(b"[" * 90 + b"]" * 90, MB - 300)), who="evil"),
    "7 jobs of 1 MB of arrays": posting(many(repeated(b"[]", MB - 300), 7), "/v1/jobs/many", "evil"),
    "8 MB that are no jobs": posting(b'{"jobs":' + repeated(b"{}") + b"}", "/v1/jobs/many", "evil"),
    "8 MB of ids": posting(b'{"ids":' + repeated(b"[]") + b"}", "/v1/jobs/cancel", "evil"),
    "5 jobs of 1 MB, listed": listing,
    "900 streams": streams,
}


def victim(token: str, id_: str, begun: Event, stop: Event, out: multiprocessing.Queue[list[float]]) -> None:
    """Read a job 50 times a second on its own connection."""
    times: list[float] = []
    conn = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    while not stop.is_set():
        began = time.perf_counter()
        try:
            conn.request("GET", f"/v1/jobs/{id_}", headers={"Authorization": f"Bearer {token}"})
            response = conn.getresponse()
            response.read()
            ok = response.status == 200
        except OSError:
            ok = False
            conn.close()
        times.append(time.perf_counter() - began if ok else 60.0)
        begun.set()
        time.sleep(0.02)
    out.put(times)


class Process:
    """The service's process, from /proc."""

    def __init__(self, pid: int) -> None:
        self._folder = f"/proc/{pid}"

    def cpu(self) -> float:
        with open(f"{self._folder}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, kind: str) -> float:
        with open(f"{self._folder}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(kind)) / 1024

    def forget_peak(self) -> None:
        with open(f"{self._folder}/clear_refs", "w") as file:
            file.write("5")


@contextmanager
def serving() -> Iterator[Process]:
    command = [sys.executable, "-m", "holdfast.cli", "serve", "doors:hf", "--port", str(PORT), "--tick"]
    environ = os.environ | {"HOLDFAST_TICK_SECRETS": "0123456789abcdef-tick"}
    process = subprocess.Popen(command, env=environ, cwd=Path(__file__).parent)
    try:
        while request("GET", "/v1/health/ready")[0] != 200:
            time.sleep(0.1)
        yield Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def measured(service: Process, attack: Attack, tokens: dict[str, str], id_: str) -> tuple[float, float, list[float]]:
    """Return CPU seconds and MB of one attack, and how long each request of the other tenant took."""
    begun, stop = multiprocessing.Event(), multiprocessing.Event()
    out: multiprocessing.Queue[list[float]] = multiprocessing.Queue()
    other = multiprocessing.Process(target=victim, args=(tokens["acme"], id_, begun, stop, out))
    other.start()
    begun.wait()
    service.forget_peak()
    cpu, memory, began, times = service.cpu(), service.memory("VmRSS"), time.monotonic(), 0
    while not times or time.monotonic() - began < SECONDS:
        attack(tokens)
        times += 1
    seconds = time.monotonic() - began
    cost = (service.cpu() - cpu - seconds * IDLE[0]) / times
    more = service.memory("VmHWM") - memory
    stop.set()
    found = out.get()
    other.join()
    return max(0.0, cost), more, found


IDLE = [0.0]  # CPU seconds a second that the other tenant's requests cost
hf = Holdfast()


@hf.task(name="holdfast_bench.any")
async def anything(x: object = None) -> None: ...


def main() -> None:
    tokens = {
        tenant: hf.tokens.create(tenant, tenant=tenant, scopes=["jobs:read", "jobs:write"])[0]
        for tenant in ("acme", "evil")
    }
    with serving() as service:
        made = request("POST", "/v1/jobs", tokens["acme"], job(b"1"))[1]
        id_ = json.loads(made)["id"]
        idle, _, times = measured(service, lambda _: time.sleep(SECONDS), tokens, id_)
        IDLE[0] = idle / SECONDS
        sys.stdout.write(f"{'':36} {'CPU ms':>8} {'MB':>6} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'failed':>7}\n")
        print_row("nothing", 0.0, 0.0, times)
        chosen = sys.argv[1:] or [*STRANGERS, *TENANTS]
        for name, attack in ((each, (STRANGERS | TENANTS)[each]) for each in chosen):
            print_row(name, *measured(service, attack, tokens, id_))
    hf.close()


def print_row(name: str, cpu: float, memory: float, times: list[float]) -> None:
    shown = sorted(1000 * each for each in times)
    p99 = statistics.quantiles(shown, n=100)[98] if len(shown) > 1 else shown[0]
    failed = sum(each >= 60.0 for each in times)
    times_shown = f"{statistics.median(shown):8.1f} {p99:8.1f} {shown[-1]:8.1f}"
    sys.stdout.write(f"{name:36} {1000 * cpu:8.0f} {memory:6.0f} {times_shown} {failed:7}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
