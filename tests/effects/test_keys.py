"""Keys of jobs."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Dedupe, Holdfast
from holdfast.effects import job_key

words = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=12)


def test_a_jobs_key_is_written_as_in_the_document() -> None:
    assert job_key("sync", "org-1", {"b": [1, 2], "a": "x"}) == 'sync::org-1::{"a":"x","b":[1,2]}'
    assert job_key("sync", None, {}) == "sync::global::{}"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(words, json_values, max_size=5))
def test_the_order_of_names_does_not_change_a_jobs_key(payload: dict[str, Any]) -> None:
    assert job_key("t", "o", payload) == job_key("t", "o", dict(reversed(payload.items())))


@given(words, st.none() | words, st.dictionaries(words, json_values, max_size=3), words, st.none() | words)
def test_jobs_of_other_types_and_orgs_never_share_a_key(
    type_: str, org: str | None, payload: dict[str, Any], other_type: str, other_org: str | None
) -> None:
    same = (type_, org) == (other_type, other_org)
    assert (job_key(type_, org, payload) == job_key(other_type, other_org, payload)) == same


def test_a_task_that_derives_its_key_derives_the_same(hf: Holdfast) -> None:
    @hf.task(name="sync", dedupe=Dedupe())
    def sync(b: int, a: str) -> None: ...

    job = sync.using(tenant="org-1").enqueue(1, "x").info()
    assert job is not None and job.dedupe_key == job_key("sync", "org-1", {"a": "x", "b": 1})


def test_keys_and_signatures_need_no_database_driver() -> None:
    code = (
        "import sys; from holdfast.effects import job_key, refusal; import holdfast.effects.signature; "
        "print([m for m in ('psycopg', 'aiohttp', 'cryptography') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_a_name_that_effects_has_not_is_an_error() -> None:
    import holdfast.effects

    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = holdfast.effects.nope
