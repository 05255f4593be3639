"""Keys that identify equal jobs: for `task.using(dedupe=...)`, for emit, and for columns of sinks."""

from __future__ import annotations

from typing import Any

from holdfast.model import payload


def job_key(type: str, org_id: str | None, arguments: Any) -> str:
    """Return `<type>::<org_id|global>::<sorted-json>`: equal payloads give equal keys, whatever the order of names.

    A task with a Dedupe derives the same key from its arguments. A payload of more than 1,000 bytes is replaced by its
    hash, and a type or org_id that contains a colon is escaped.
    """
    payload.check_text(type, "type", 200)
    if org_id is not None:
        payload.check_text(org_id, "org_id", 200)
    text = payload.sorted_json(payload.encode(arguments, "the payload"))
    return payload.dedupe_key(type, org_id, text)
