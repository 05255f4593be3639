"""Calls on actions: start, process, read; jobs changed at once, or edited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.model.action import STEP, ActionInfo, ActionProgress, Preview
from holdfast.model.view import EVERYTHING, View
from holdfast.store.call import Call, array, as_json, first, last, mapping, text_array
from holdfast.store.select import every, given, visible

_COLUMNS = (
    "id::text, kind, target, by, reason, before, params, filter, state, started_at, finished_at, preview, "
    "examples::text[], scanned, matched, changed, skipped, cardinality(locked), error"
)


class ActionCalls:
    """The calls, for one schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema

    def preview(self, kind: str, where: Any, params: Mapping[str, Any], view: View = EVERYTHING) -> Call[Preview]:
        return Call(
            "SELECT matching, complete, examples::text[] "
            f"FROM {self.schema}.preview_action(%s, %s::jsonb, %s::jsonb, %s, %s)",
            (kind, as_json(where), as_json(params), *_who(view)),
            lambda rows: Preview(*rows[0]),
        )

    def start(
        self,
        id_: str,
        kind: str,
        where: Any,
        ids: Sequence[str] | None,
        params: Mapping[str, Any],
        by: str | None,
        reason: str | None,
        view: View = EVERYTHING,
    ) -> Call[str]:
        """Start an action under an id of the caller, so that the call can be repeated."""
        return Call(
            f"SELECT {self.schema}.start_action(%s, %s::jsonb, %s::uuid[], %s::jsonb, %s, %s, %s, %s, %s::uuid)::text",
            (kind, as_json(where), None if ids is None else array(ids), as_json(params), by, reason, *_who(view), id_),
            first,
        )

    def work(self, id_: str | None = None, seconds: float = STEP) -> Call[ActionProgress]:
        """Process one action for `seconds` seconds; commit each step."""
        return Call(
            f"SELECT id::text, state, more FROM {self.schema}.work_actions(%s::uuid, make_interval(secs => %s))",
            (id_, seconds),
            lambda rows: ActionProgress(*rows[0]),
        )

    def abort(self, id_: str, by: str | None, reason: str | None, view: View = EVERYTHING) -> Call[bool]:
        return Call(f"SELECT {self.schema}.abort_action(%s::uuid, %s, %s, %s)", (id_, by, reason, view.tenant), first)

    def get(self, id_: str, view: View = EVERYTHING) -> Call[ActionInfo | None]:
        where = given("id = %s::uuid", id_) & visible(self.schema, view, "view_tenant")
        return Call(
            f"SELECT {_COLUMNS} FROM {self.schema}.actions WHERE {where.sql}",
            where.params,
            lambda rows: ActionInfo(*rows[0]) if rows else None,
        )

    def select(
        self,
        *,
        on_jobs: bool | None = None,
        kind: str | None = None,
        target: str | None = None,
        by: str | None = None,
        state: str | None = None,
        before: str | None = None,
        limit: int = 50,
        view: View = EVERYTHING,
    ) -> Call[list[ActionInfo]]:
        """Return the newest actions that match all given values, before an id."""
        values = {"kind": kind, "target": target, "by": by, "state": state}
        where = every(
            (
                visible(self.schema, view, "view_tenant"),
                *(given(f"{name} = %s", value) for name, value in values.items()),
                given("(preview IS NOT NULL) = %s", on_jobs),
                given("actions.id < %s::uuid", before),
            )
        )
        return Call(
            f"SELECT {_COLUMNS} FROM {self.schema}.actions WHERE {where.sql} ORDER BY actions.id DESC LIMIT %s",
            (*where.params, limit),
            lambda rows: [ActionInfo(*row) for row in rows],
            prepare=False,
        )

    def act(
        self, kind: str, ids: Sequence[str], by: str | None, reason: str | None, view: View = EVERYTHING, **params: Any
    ) -> Call[dict[str, str]]:
        """Change jobs at once and record it; return the outcome of each."""
        return Call(
            f"SELECT id::text, outcome FROM {self.schema}.act_on_jobs(%s, %s::uuid[], %s::jsonb, %s, %s, %s, %s)",
            (kind, array(ids), as_json(params), by, reason, *_who(view)),
            mapping,
            due=lambda outcomes: last([each for each, how in outcomes.items() if kind == "retry" and how == "changed"]),
        )

    def edit(
        self,
        id_: str,
        args: bytes,
        expected: Any,
        keys: Sequence[str] | None,
        by: str | None,
        reason: str | None,
        view: View = EVERYTHING,
    ) -> Call[str]:
        """Give a job other arguments, unless they are not the expected ones any more; a dead job is retried."""
        return Call(
            f"SELECT {self.schema}.edit_job(%s::uuid, %s::jsonb, %s::jsonb, %s::text[], %s, %s, %s, %s)",
            (
                id_,
                args.decode(),
                msgspec.json.encode(expected).decode(),
                None if keys is None else text_array(keys),
                by,
                reason,
                *_who(view),
            ),
            first,
            due=lambda outcome: id_ if outcome == "retried" else None,
        )


def _who(view: View) -> tuple[str | None, bool]:
    """Return the parameters of a view: its tenant, and whether it may change deliveries of webhooks."""
    return view.tenant, view.changes_deliveries
