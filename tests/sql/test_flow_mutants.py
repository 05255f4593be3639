"""The machine of test_flow_machine.py detects each deliberate fault."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from hypothesis import Phase
from test_flow_machine import LONG, SEQUENCES, Machine, explore, go_through, machines

from tests.support import sql_core as core
from tests.support.mutants import mutant
from tests.support.sql_clock import STOPPED, Clock

# Each breaks one promise, and the machine must notice.
MUTANTS = {
    "claims are not counted": {"claim_round": [("running = m.running + u.jobs", "running = m.running")]},
    "ends are not counted": {"end_under_limits": [("running = m.running - e.jobs", "running = m.running")]},
    "two lanes of a claim take the same place": {
        "claim_round": [("- sum(v.ask) over (partition by k.key order by v.n) + v.ask as spare", "as spare")]
    },
    "a lane that comes again gives the same jobs": {"claim_round": [(" and j.id <> all (p_claim.ids)", "")]},
    "tokens are not spent": {"claim_round": [("s.free_tokens - u.jobs", "s.free_tokens")]},
    "probes are not alone": {"claim_round": [("then u.first else", "then null else")]},
    "pauses do not hold": {
        "views/limit_state": [("case when p.paused then 0 else greatest", "case when false then 0 else greatest")]
    },
    "an open breaker lets through": {"views/limit_state": [("b.open_until > clock() or", "")]},
    "a probe's failure does not count": {"end_under_limits": [("when e.probe = -1 then m.opens + 1", "")]},
    "ends count in any order": {
        "end_under_limits": [("else row_number() over (partition by e.key order by e.nth) end", "else 0 end")]
    },
    "room that was made is not used": {"reopen_lanes": [("then s.room + 1 else 0 end", "then 0 else 0 end")]},
    "a key that opens by itself later is not looked at again": {
        "reopen_lanes": [("where b.place is null and b.wait is not null or", "where")]
    },
    "closed lanes are not due": {"claim_round": [("where m.key = f.shut_by)", "where false)")]},
    "ends that commit late are missed": {"fold_releases": [("r.xid = any (v_fold.open_xids)", "false")]},
    "tasks are not limited": {"limited_tasks": [("return (select array_agg", "return null; return (select array_agg")]},
    "more start than can": {
        "claim_ring": [("case when v_direct then p_claim.free - cardinality(p_claim.direct) end", "null")]
    },
    "a claim waits for the ring": {"lock_ring": [("set lock_timeout = '100ms'", "set lock_timeout = '60s'")]},
    "a claim waits for an operator": {
        "claim_rings": [
            (
                "p_claim.token := next_token();",
                "p_claim.token := next_token(); perform 1 from limit_settings for update;",
            )
        ]
    },
}


def run(make: Callable[[], Machine]) -> None:
    """Go through the fixed sequences, and on to random ones while nothing has gone red."""
    for steps in () if LONG else SEQUENCES.values():
        go_through(make, steps)
    explore(make, budget=90, phases=(Phase.generate,))


@pytest.mark.timeout(200)
@pytest.mark.parametrize("changes", MUTANTS.values(), ids=MUTANTS)
def test_the_machine_goes_red_when(dsn: str, changes: dict[str, list[tuple[str, str]]]) -> None:
    with mutant(dsn, changes), core.session(dsn, "mutant") as conn:
        conn.execute(STOPPED)
        with (
            machines(dsn, Clock(conn), "mutant", patience="2s") as make,
            pytest.raises((AssertionError, psycopg.errors.QueryCanceled)),
        ):
            run(make)
