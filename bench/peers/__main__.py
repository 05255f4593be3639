"""`python -m bench.peers`: install the peers, measure them in turns, and write the data, the chart and the table."""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bench.peers import machine, report
from bench.peers.install import BUILD, install
from bench.peers.measure import WORKLOADS, Bench, Figures, Servers
from bench.peers.peers import ALL, Peer, chosen

RUNS = BUILD / "runs.jsonl"


def main() -> None:
    """Measure what is missing of the wanted rounds, then report."""
    given = arguments()
    if given.report:
        report.write(report.load())
        return
    peers = chosen(given.only)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped; run it again to continue"))  # and end what was started
    BUILD.mkdir(parents=True, exist_ok=True)
    if given.fresh:
        RUNS.unlink(missing_ok=True)
    install(peers)
    with redis(given.redis) as address:
        servers = Servers(given.postgres, address)
        for number in range(given.rounds):
            for peer in (
                peers[number % len(peers) :] + peers[: number % len(peers)]
            ):  # each round begins with another one
                measure(peer, servers, number, given)
        if given.write:
            publish(servers)
    report.show(recorded())


def publish(servers: Servers) -> None:
    """Write the data file, the chart and the table from all runs of full size."""
    runs = recorded()
    full = {run["peer"] for run in runs if run["size"] == 1}
    if not full:
        raise SystemExit("there are no runs of full size to publish; leave out --size")
    report.write(
        report.collect(runs, [facts(peer, servers) for peer in ALL if peer.name in full], machine.facts(servers))
    )


def arguments() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser("python -m bench.peers", description=__doc__)
    parser.add_argument("--only", metavar="NAMES", help="these peers, separated by commas, as in holdfast,pg-boss")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured (3)")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help=", ".join(WORKLOADS))
    parser.add_argument("--size", type=float, default=1.0, help="multiplies the number of jobs")
    parser.add_argument("--postgres", default="postgresql://postgres@127.0.0.1:5432", help="server, without a database")
    parser.add_argument("--redis", help="server; default: one is started, with its file synchronized every second")
    parser.add_argument("--fresh", action="store_true", help="repeat measurements that exist")
    parser.add_argument("--write", action="store_true", help="write results.json, the chart and the table of the docs")
    parser.add_argument("--report", action="store_true", help="only make the chart and the table from results.json")
    return parser.parse_args()


def measure(peer: Peer, servers: Servers, number: int, given: argparse.Namespace) -> None:
    """Measure the workloads of one round that are not recorded yet."""
    known = {(run["peer"], run["workload"], run["round"], run["size"]) for run in recorded()}
    wanted = [name for name in given.workloads.split(",") if name != "tenants" or peer.tenants]
    missing = [name for name in wanted if (peer.name, name, number, given.size) not in known]
    bench = Bench(peer, servers, given.size)
    if missing:
        bench.set_up()
    for name in missing:
        start = time.monotonic()
        figures = WORKLOADS[name](bench)
        shown = "  ".join(f"{key} {value:,.1f}" for key, value in figures.items())
        print(f"round {number + 1}  {peer.name:16} {name:8} {shown}  ({time.monotonic() - start:.0f} s)", flush=True)
        record(peer, name, number, given.size, figures)


def record(peer: Peer, workload: str, number: int, size: float, figures: Figures) -> None:
    """Append a run to the file that makes an interrupted series go on where it stopped."""
    run = {"peer": peer.name, "workload": workload, "round": number, "size": size, "at": int(time.time()), **figures}
    with RUNS.open("a", encoding="utf-8") as file:
        file.write(json.dumps(run) + "\n")


def recorded() -> list[dict[str, Any]]:
    """Return the runs so far."""
    return [json.loads(line) for line in RUNS.read_text(encoding="utf-8").splitlines()] if RUNS.exists() else []


def facts(peer: Peer, servers: Servers) -> dict[str, Any]:
    """Return what a peer is: versions, settings, store."""
    found = Bench(peer, servers, 1).call("facts")
    return {"name": peer.name, "store": peer.store, "tenants": peer.tenants, **found}


@contextmanager
def redis(address: str | None) -> Iterator[str]:
    """Yield the address of a Redis that keeps its jobs: the given one, or one of our own."""
    if address is not None:
        yield address
        return
    folder, port = BUILD / "redis", 6399
    folder.mkdir(exist_ok=True)
    options = ["--port", port, "--dir", folder, "--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    try:
        server = subprocess.Popen(["redis-server", *map(str, options)], stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        raise SystemExit("redis-server is not installed: apt-get install redis-server, or pass --redis") from None
    try:
        time.sleep(0.5)
        yield f"redis://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main()
