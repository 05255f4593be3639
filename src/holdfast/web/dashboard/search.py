"""What a filter of jobs consists of, and the arguments that it looks for."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.web.fields import LongText, Paged
from holdfast.web.jobs import WhichJobs
from holdfast.web.problems import Problem


class Search(WhichJobs):
    args: LongText | None = None
    """Arguments that the job must have: `to=ada`, or a JSON object."""


FILTERS = tuple(name for name in Search.__struct_fields__ if name not in Paged.__struct_fields__)
"""All that a search may say: an action that left one out would change more jobs than were shown."""


def parse_args(given: str | None) -> Any:
    """Return the arguments to search for: a JSON object, or `name=value` with a value in JSON or as it is."""
    if given is None:
        return None
    name, _, value = given.partition("=")
    try:
        found = msgspec.json.decode(given if given.lstrip().startswith("{") else value)
    except (msgspec.DecodeError, RecursionError):
        found = value
    if given.lstrip().startswith("{") or not value:
        if not isinstance(found, dict):
            raise Problem(422, f'query.args: expected to=ada or {{"to": "ada"}}, got {given[:100]!r}')
        return found
    return {name.strip(): found}
