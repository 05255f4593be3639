"""Ids: UUIDv7 as RFC 9562 has it, growing within a process."""

from __future__ import annotations

import itertools
import threading
import time
import uuid

import pytest

from holdfast.model.job import IdMaker, ids, parse_id


def test_an_id_is_a_uuid_of_version_7() -> None:
    for text in (*IdMaker().make_many(1000), IdMaker().make(), ids.make()):
        found = uuid.UUID(text)
        assert str(found) == text
        assert found.version == 7
        assert found.variant == uuid.RFC_4122
        assert found.int >> 62 & 0b11 == 0b10


def test_an_id_begins_with_the_time_in_milliseconds() -> None:
    before = time.time_ns() // 1_000_000
    stamps = [uuid.UUID(ids.make()).int >> 80 for _ in range(100)]
    after = time.time_ns() // 1_000_000
    assert before <= stamps[0]
    assert stamps[-1] <= after
    assert stamps == sorted(stamps)


def test_200_000_ids_grow_strictly() -> None:
    maker = IdMaker()
    made = [id_ for _ in range(100) for id_ in maker.make_many(1000)] + [maker.make() for _ in range(100_000)]
    assert len(made) == 200_000
    assert all(one < other for one, other in itertools.pairwise(made))


def test_ids_made_by_many_threads_are_unique_and_grow_in_each() -> None:
    maker = IdMaker()
    made: dict[int, list[str]] = {}
    start = threading.Barrier(8)

    def work(number: int) -> None:
        start.wait(40)
        made[number] = [maker.make() for _ in range(3000)] + maker.make_many(2000)

    threads = [threading.Thread(target=work, args=[n]) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mine in made.values():
        assert mine == sorted(mine)
    assert len({id_ for mine in made.values() for id_ in mine}) == 40_000
    # Counter and time alone distinguish them: no two threads got the same place.
    assert len({id_[:23] for mine in made.values() for id_ in mine}) == 40_000


def test_ids_grow_although_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = IdMaker()
    now = time.time_ns()
    made = [maker.make()]
    for shift in (10**9, -(3600 * 10**9), 0, -(10**6), 2 * 10**9):
        monkeypatch.setattr(time, "time_ns", lambda shift=shift: now + shift)
        made += [maker.make(), *maker.make_many(3)]
    assert made == sorted(set(made))


def test_more_ids_than_the_counter_holds_borrow_from_the_next_millisecond(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = IdMaker()
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now)
    made = [maker.make()]
    maker._count = (1 << 26) - 3
    made += maker.make_many(6)
    assert made == sorted(set(made))
    assert {uuid.UUID(id_).version for id_ in made} == {7}
    assert {uuid.UUID(id_).variant for id_ in made} == {uuid.RFC_4122}


def test_two_processes_do_not_make_the_same_ids() -> None:
    """Two makers in one state, as after a fork, still differ in their random bits."""
    one, other = IdMaker(), IdMaker()
    assert not {id_[24:] for id_ in one.make_many(1000)} & {id_[24:] for id_ in other.make_many(1000)}


def test_no_ids_are_an_empty_list() -> None:
    assert IdMaker().make_many(0) == []


def test_an_id_is_parsed_to_its_canonical_text() -> None:
    text = ids.make()
    for form in (text, text.upper(), text.replace("-", ""), f"{{{text}}}", uuid.UUID(text)):
        assert parse_id(form) == text
