"""The primary is lost under Patroni: killed, switched over, cut off. Synchronous: nothing acknowledged is lost."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support import patroni
from tests.support.failover import Ends, Load, under_load
from tests.support.patroni import Cluster

pytestmark = [
    pytest.mark.skipif(bool(patroni.missing()), reason=f"NO PATRONI: {patroni.missing()} is missing; see .ci/tools"),
    pytest.mark.timeout(300),
]

# A silent server is given up after 3 seconds in place of 10, to save the test's time.
QUICK = "tcp_user_timeout=3000 keepalives_idle=1 keepalives_interval=1 keepalives_count=2 connect_timeout=2"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with patroni.cluster(3, cuttable=patroni.can_cut()) as made:
        yield made


def test_nothing_acknowledged_is_lost_or_doubled_when_the_primary_is_killed_switched_over_and_cut_off(
    cluster: Cluster, tmp_path: Path, seeded: random.Random
) -> None:
    with under_load(cluster, tmp_path, seeded, options=QUICK) as (load, books):
        report("killed", load, lambda: kill(cluster))
        report("switched over", load, lambda: switch_over(cluster))
        if patroni.can_cut():
            report("cut off", load, lambda: cut_off(cluster))
        else:
            print("NO NETWORK NAMESPACES HERE: the primary is not cut off")
    ends = books.audit(load)
    print(ends)
    assert ends == Ends(ends.acknowledged, 0, 0, ends.unacknowledged, ends.again, 0)
    assert ends.unacknowledged <= 6, "only an enqueue whose reply was lost may be there unacknowledged"
    assert ends.again <= 3 * 2 * 8 * 2, "more attempts were lost than were running"


def report(what: str, load: Load, fault: Callable[[], None]) -> None:
    began = time.monotonic()
    fault()
    load.wait_for_more(50)
    print(f"{what}: {load.gap_since(began):.1f} s without an acknowledged enqueue")


def kill(cluster: Cluster) -> None:
    """Kill the primary for good: of three servers two are left."""
    was = cluster.primary()
    cluster.kill(was)
    cluster.wait_for_another(was)
    cluster.wait_for_standby()


def switch_over(cluster: Cluster) -> None:
    was = cluster.primary()
    cluster.switch_over(was, cluster.wait_for_standby())
    cluster.wait_for_another(was)
    cluster.wait_for_standby()


def cut_off(cluster: Cluster) -> None:
    was = cluster.primary()
    cluster.network.connect(was, False)
    cluster.wait_for_another(was)
