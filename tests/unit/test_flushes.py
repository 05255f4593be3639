"""Outcomes that are sent again: which claims they keep, how long they wait, and when they are dropped."""

from __future__ import annotations

from holdfast.model.outcome import Outcome
from holdfast.worker.flush import FIRST_PAUSE, LONGEST_PAUSE, Deferrals, Flush
from holdfast.worker.prefetch import Lease


def leases(*tokens: int) -> dict[int, Lease]:
    return {token: Lease(token, 1, 0.0, 60.0) for token in tokens}


def ended(held: dict[int, Lease]) -> dict[int, Lease]:
    for lease in held.values():
        lease.open = 0
    return held


def flush(*pairs: tuple[str, int], closed: tuple[int, ...] = ()) -> Flush:
    return Flush([id_ for id_, _ in pairs], [token for _, token in pairs], closed=list(closed))


def test_a_claim_with_a_deferred_job_is_closed_with_that_job() -> None:
    held = ended(leases(1, 2))
    deferrals = Deferrals(held)
    first = flush(("a", 1), ("b", 1), ("c", 2), closed=(2,))
    assert deferrals.closable(first) == [2]
    deferrals.add(first.held, {"a"})
    deferrals.forget(first.closed)
    assert list(held) == [1] and deferrals
    assert deferrals.closable(flush(("d", 3), closed=(1, 3))) == [3]
    again, lost = deferrals.take(first.only({"a"}))
    assert (again.ids, again.tokens, again.closed, lost) == (["a"], [1], [1], 0)
    assert deferrals.closable(again) == [1]
    deferrals.add(again.held, frozenset())
    deferrals.forget(again.closed)
    assert not held and not deferrals


def test_a_job_that_stays_locked_waits_longer_each_time_up_to_a_second() -> None:
    deferrals, one = Deferrals(leases(1)), flush(("a", 1))
    pauses = [deferrals.add(one.held, {"a"}) for _ in range(10)]
    assert pauses[:3] == [FIRST_PAUSE, 2 * FIRST_PAUSE, 4 * FIRST_PAUSE] and pauses[-1] == LONGEST_PAUSE
    assert deferrals.add(one.held, frozenset()) == 0 and not deferrals


def test_a_deferred_outcome_is_dropped_when_its_lease_is_lost() -> None:
    held = leases(1)
    deferrals, one = Deferrals(held), flush(("a", 1))
    deferrals.add(one.held, {"a"})
    held.clear()
    again, lost = deferrals.take(one)
    assert not again and lost == 1 and not deferrals


def test_a_claim_with_a_job_that_cannot_be_stored_is_left_to_the_database() -> None:
    deferrals = Deferrals(leases(1))
    one = Flush(outcomes=[Outcome("a", 1, "failed")], closed=[1])
    deferrals.abandon(one)
    assert deferrals.closable(flush(("b", 1), closed=(1,))) is None


def test_a_flush_is_halved_until_one_outcome_is_left_and_its_claims_close_with_the_last_part() -> None:
    whole = Flush(["a", "b", "c"], [1, 1, 2], [Outcome("d", 2, "failed")], [1, 2])
    first, second = whole.halves()
    assert first.held | second.held == whole.held and first.part and second.part
    assert (first.closed, second.closed) == ([], [1, 2])
    (stored,) = Flush(outcomes=whole.outcomes).parts(ValueError("no"))
    assert stored.outcomes[0].error == {"type": "UnstorableOutcome", "message": "no"}
    assert stored.parts(ValueError("no")) == []
