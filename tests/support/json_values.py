"""JSON values for tests with Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

texts = st.text(st.characters(codec="utf-8"), max_size=30)
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=15,
)
