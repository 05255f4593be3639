"""Conditions of lists: what is given becomes SQL, and a view adds what a caller may see."""

from __future__ import annotations

from holdfast.model.job import JobInfo
from holdfast.model.view import EVERYTHING, View
from holdfast.store.calls import Calls
from holdfast.store.jobs import Filter
from holdfast.store.select import Page, Where, every, given, visible, visible_jobs

ID = "0190e0e0-0000-7000-8000-000000000000"


def test_a_value_fills_every_placeholder_of_its_condition() -> None:
    assert given("a = %s OR b = %s", 7) == Where("a = %s OR b = %s", (7, 7))
    assert given("a = %s", None) == Where()


def test_conditions_that_are_not_given_leave_nothing_behind() -> None:
    assert every([Where(), Where("a"), Where(), Where("b")]).sql == "a AND b"
    assert every([]).sql == "true"


def test_a_filter_has_one_parameter_for_each_placeholder() -> None:
    where = Filter(status="dead", error="TimeoutError", batch=ID).where()
    assert where.sql.count("%s") == len(where.params) == 5


def test_a_view_of_everything_adds_no_condition() -> None:
    assert visible("holdfast", EVERYTHING) == visible_jobs("holdfast", EVERYTHING) == Where()


def test_a_tenants_view_asks_may_see_and_leaves_deliveries_out() -> None:
    where = visible_jobs("holdfast", View(tenant="acme", reads_deliveries=False))
    assert where.sql == "holdfast.may_see(%s, %s, tenant) AND task <> %s"
    assert where.params == (False, "acme", "holdfast.webhook")


def test_a_change_takes_only_the_jobs_that_a_view_may_change() -> None:
    calls = Calls("holdfast")
    own = View(tenant="acme", changes_deliveries=False)
    for change in (calls.jobs.cancel, calls.dead.retry, calls.dead.discard, calls.webhooks.redeliver):
        assert "seen_jobs" not in change([ID]).sql
        assert change([ID], own).params == (False, "acme", False, f"{{{ID}}}")


def test_a_page_without_a_size_cuts_nothing() -> None:
    plain = Calls("holdfast").jobs.list(JobInfo, Filter(), Page(limit=5, after=ID, order="oldest"))
    assert "until" not in plain.sql and "ORDER BY t.id LIMIT" in plain.sql and plain.params == (ID, 5)
