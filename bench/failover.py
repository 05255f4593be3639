"""Seconds without service when a primary is lost: `python -m bench.failover [killed|switched|cut] [ROUNDS]`, as root.

Three servers in synchronous mode (ttl 5, loop_wait 1, retry_timeout 3), two workers whose jobs write rows in their own
transactions, two threads that enqueue, all with the default settings. Prints the longest time without an acknowledged
enqueue and without a committed row, for each round and as medians; jobs that were lost or doubled; and errors.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.support import patroni
from tests.support.failover import under_load
from tests.support.patroni import Cluster


def kill(cluster: Cluster, was: int) -> None:
    cluster.kill(was)


def switch_over(cluster: Cluster, was: int) -> None:
    cluster.switch_over(was, cluster.wait_for_standby())


def cut_off(cluster: Cluster, was: int) -> None:
    cluster.network.connect(was, False)


def repair(what: str, cluster: Cluster, was: int) -> None:
    """Bring the former primary back as a standby."""
    if what == "cut":
        cluster.network.connect(was, True)
        cluster.kill(was)
    if what != "switched":
        cluster.start_node(was, fresh=True)
    cluster.wait_until_whole()


FAULTS: dict[str, Callable[[Cluster, int], None]] = {"killed": kill, "switched": switch_over, "cut": cut_off}


def measure(what: str, rounds: int) -> None:
    """Lose the primary this many times, and print what it cost."""
    enqueues, rows = [], []
    with tempfile.TemporaryDirectory() as folder, patroni.cluster(3, cuttable=patroni.can_cut()) as cluster:
        with under_load(cluster, Path(folder), random.Random(1), connect_timeout=10.0) as (load, books):
            for _ in range(rounds):
                was, began, at = cluster.primary(), time.monotonic(), time.time()
                FAULTS[what](cluster, was)
                cluster.wait_for_another(was)
                load.wait_for_more(50)
                time.sleep(1)  # rows of jobs follow
                enqueues.append(load.gap_since(began))
                rows.append(books.gap_since(at))
                print(f"  {what}: {enqueues[-1]:.1f} s, {rows[-1]:.1f} s", flush=True)
                repair(what, cluster, was)
        ends = books.audit(load)
    print(f"{what}: without an acknowledged enqueue {_shown(enqueues)}, without a row {_shown(rows)}; {ends}")
    if load.errors:
        print(f"  {load.errors[0][:300]}")


def _shown(seconds: list[float]) -> str:
    return f"{statistics.median(seconds):.1f} s ({', '.join(f'{each:.1f}' for each in seconds)})"


if __name__ == "__main__":
    if lacking := patroni.missing():
        sys.exit(f"this machine lacks {lacking}; see .ci/tools")
    asked = sys.argv[1:2] or list(FAULTS)
    for fault in asked:
        measure(fault, int((sys.argv[2:] or ["5"])[0]))
