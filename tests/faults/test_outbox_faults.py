"""Deliveries whose worker is stopped or killed midway: nothing is lost, and the next attempt knows of the first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from tests.conftest import wait_until
from tests.support.workers import Process

SERVED = {"queues": "default,outbox", "poll": 0.1, "upkeep": 0.1, "child_processes": 2}
CHANNELS = ["on_loop", "in_thread", "in_process"]


def finished(hf: Holdfast, count: int) -> Any:
    return wait_until(lambda: len(hf.outbox.list(status="delivered", limit=1000)) == count)


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_send_that_sigterm_interrupts_is_made_again_by_one_who_knows(
    hf: Holdfast, dsn: str, tmp_path: Path, channel: str
) -> None:
    message = hf.outbox.emit(None, channel, 3.0, key="k", tenant="acme")
    worker = Process(dsn, tmp_path, "posting", grace=0.2, **SERVED)
    try:
        wait_until(lambda: worker.notes("begins"))
        assert worker.stop() == 0, worker.log.read_text()
        info = hf.outbox.get(message.id)
        assert info is not None
        assert (info.status, info.attempts, info.error and info.error["code"]) == ("pending", 1, "INTERRUPTED")
        other = Process(dsn, tmp_path, "posting", **SERVED)
        finished(hf, 1)
        other.stop()
    finally:
        worker.kill()
    notes = [["begins", "1", "False"], ["begins", "2", "True"], ["ends", "2", "True"]]
    if channel == "in_thread":  # a thread cannot be stopped: it did send, and only the second attempt can record that
        notes.insert(1, ["ends", "1", "False"])
    assert [[word, attempt, maybe] for word, _, attempt, maybe in worker.notes()] == notes
    assert {key for _, key, _, _ in worker.notes()} == {f"{channel}/acme/k"}


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_send_whose_worker_is_killed_is_made_again_by_one_who_knows(
    hf: Holdfast, dsn: str, tmp_path: Path, channel: str
) -> None:
    message = hf.outbox.emit(None, channel, 30.0, key="k")
    worker = Process(dsn, tmp_path, "posting", lease=2, renew=0.5, **SERVED)
    wait_until(lambda: worker.notes("begins"))
    worker.kill()
    other = Process(dsn, tmp_path, "posting", **SERVED)
    try:
        finished(hf, 1)
    finally:
        other.stop()
    assert [note[3] for note in worker.notes("begins")] == ["False", "True"]
    info = hf.outbox.get(message.id)
    assert info is not None
    assert (info.attempts, info.error and info.error["code"]) == (2, "LEASE_LOST")


def test_a_send_that_ends_within_the_grace_time_is_made_once(hf: Holdfast, dsn: str, tmp_path: Path) -> None:
    for channel in CHANNELS:
        hf.outbox.emit(None, channel, 1.0, key="k")
    worker = Process(dsn, tmp_path, "posting", **SERVED)
    wait_until(lambda: len(worker.notes("begins")) == 3)
    assert worker.stop() == 0
    assert [each.status for each in hf.outbox.list()] == ["delivered"] * 3
    assert [note[3] for note in worker.notes()] == ["False"] * 6


def test_a_job_in_a_child_process_emits_in_its_transaction(hf: Holdfast, dsn: str, tmp_path: Path) -> None:
    @hf.task(name="buy")
    def buy(n: int) -> None: ...

    buy.using(tenant="acme").enqueue_many([1, 2])
    worker = Process(dsn, tmp_path, "posting", **SERVED)
    try:
        finished(hf, 4)
    finally:
        worker.stop()
    assert sorted(note[1] for note in worker.notes("ends")) == [
        "in_process/acme/order-1",
        "in_process/acme/order-2",
        "on_loop/acme/order-1",
        "on_loop/acme/order-2",
    ]
    assert {each.order for each in hf.outbox.list(channel="on_loop")} == {"buyer"}
