"""/v1/actions: changes of many jobs, processed in the background, and the log of operators' changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from holdfast.client.actions import start_action
from holdfast.model import payload
from holdfast.model.action import ActionInfo, Kind, Preview
from holdfast.store.select import PAGE_BYTES
from holdfast.web.context import RequestContext
from holdfast.web.fields import Body, Ids, Moment, Name, Paged, Priority, Queue, ReasonBody, Since, given, text
from holdfast.web.jobs import Status
from holdfast.web.problems import Problem
from holdfast.web.routing import OPERATES, WRITES, Needs, Routes

routes = Routes("/actions", "actions")
FIRST_ROWS = 10  # of the first query of a list: the arguments of edited jobs may be large
OPTION = {"prioritize": "priority", "move": "queue", "reschedule": "run_at"}  # of each kind that has one
KINDS = Kind.__args__  # type: ignore[attr-defined]  # of changes of jobs, which their starter may look at


class ActionFilter(Body):
    """A filter of jobs; all that is given must hold. An empty one is refused."""

    status: Status | Annotated[list[Status], Meta(min_length=1, max_length=10)] | UnsetType = UNSET
    """One status, or a list."""
    task: Name | UnsetType = UNSET
    queue: Queue | UnsetType = UNSET
    tenant: Name | UnsetType = UNSET
    batch: UUID | UnsetType = UNSET
    error: Name | UnsetType = UNSET
    """Type or code of the last error."""
    error_group: Name | UnsetType = UNSET
    """Fingerprint of the last error."""
    since: Since | UnsetType = UNSET
    """Enqueued since: a time with its zone, or 90m, 24h, 30d."""
    until: Moment | UnsetType = UNSET
    """Enqueued before."""
    finished_since: Since | UnsetType = UNSET
    """Failed or dead since."""
    finished_until: Moment | UnsetType = UNSET
    """Failed or dead before."""
    args: Annotated[dict[str, Any], Meta(min_length=1)] | UnsetType = UNSET
    """Arguments that the job must have, such as {"order": 42}."""


class ActionOptions(Body):
    """The value that jobs get: prioritize takes a priority, move a queue, reschedule a time; the rest take nothing."""

    priority: Priority | UnsetType = UNSET
    """0 critical, 1 high, 2 normal, 3 low."""
    queue: Queue | UnsetType = UNSET
    run_at: Moment | UnsetType = UNSET
    """Time with its zone; one that has passed means now."""


class NewPreview(Body):
    """An action to look at before it is started."""

    kind: Kind
    filter: ActionFilter
    options: ActionOptions = msgspec.field(default_factory=ActionOptions)

    def __post_init__(self) -> None:
        _check_options(self.kind, self.options)


class NewAction(ReasonBody, kw_only=True):
    """An action on the jobs that match a filter, or on a list of jobs."""

    kind: Kind
    filter: ActionFilter | None = None
    ids: Ids | None = None
    options: ActionOptions = msgspec.field(default_factory=ActionOptions)

    def __post_init__(self) -> None:
        if (self.filter is None) == (self.ids is None):
            raise ValueError("give either filter or ids")
        _check_options(self.kind, self.options)


class ListActions(Paged):
    kind: Name | None = None
    """Such as retry, cancel, edit, pause, limits.set, tokens.create."""
    target: Name | None = None
    """The job, key, schedule or token that was changed."""
    by: Name | None = None
    """The token's name, or the database user."""
    state: Literal["running", "done", "aborted", "failed"] | None = None


@dataclass(frozen=True, slots=True)
class Actions:
    """A page of the log; `next` is the cursor of the next page."""

    items: list[ActionInfo]
    next: str | None


def _check_options(kind: str, options: ActionOptions) -> None:
    wanted, found = OPTION.get(kind), sorted(given(options))
    if found != ([] if wanted is None else [wanted]):
        takes = "no options" if wanted is None else f"the option {wanted}"
        raise ValueError(f"options: {kind} takes {takes}, got {', '.join(found) or 'none'}")


@routes.post("/preview", WRITES, keyed=False)
async def preview(ctx: RequestContext, new: NewPreview) -> Preview:
    """Return how many jobs an action would change now, counted up to 10,001, and ten of them."""
    where, params = read_filter(ctx, new.filter), _params(ctx, new.options)
    return await ctx.run(ctx.calls.actions.preview(new.kind, where, params, ctx.view))


@routes.post("", WRITES, status=201)
async def start(ctx: RequestContext, new: NewAction) -> ActionInfo:
    """Start an action. Jobs that are enqueued or die later stay as they are, and so do ids that are not yours. A small
    action has ended when this returns; a large one is processed in the background."""
    where = None if new.filter is None else read_filter(ctx, new.filter)
    ids = None if new.ids is None else [str(each) for each in new.ids]
    return await begin(ctx, new.kind, where, ids, _params(ctx, new.options), new.reason)


async def begin(
    ctx: RequestContext, kind: Kind, where: Any, ids: list[str] | None, params: dict[str, Any], reason: str | None
) -> ActionInfo:
    """Start an action for the caller, and return it after its first step."""
    by, work = ctx.caller.name, ctx.conn is None
    return await ctx.run_steps(start_action(ctx.calls, kind, where, ids, params, by, reason, view=ctx.view, work=work))


@routes.get("", Needs("jobs:write", of_all="operate"))
async def list_actions(ctx: RequestContext, query: ListActions) -> Actions:
    """List what operators did, newest first. Of all tenants only with the scope operate."""
    same = {name: getattr(query, name) for name in ("kind", "target", "by", "state")}
    found: list[ActionInfo] = []
    before, size, rows = await ctx.before(query.cursor), 0, FIRST_ROWS
    while len(found) < query.limit and size < PAGE_BYTES:
        most = min(rows, query.limit - len(found))
        some = await ctx.run(ctx.calls.actions.select(**same, before=before, limit=most, view=ctx.view))
        found += some
        if len(some) < most:
            return Actions(found, None)
        before, size, rows = some[-1].id, size + sum(len(msgspec.json.encode(each)) for each in some), rows * 4
    return Actions(found, await ctx.service.seal(ctx.caller, before))


@routes.get("/{action_id}", WRITES)
async def get(ctx: RequestContext, action_id: UUID) -> ActionInfo:
    """Return an action with its progress. What is not about jobs only with the scope operate."""
    found = await find(ctx, str(action_id))
    if ctx.caller.everyone and found.kind not in KINDS:
        OPERATES.check(ctx.caller)
    return found


@routes.post("/{action_id}/abort", WRITES, optional_body=True)
async def abort(ctx: RequestContext, action_id: UUID, why: ReasonBody) -> ActionInfo:
    """Stop an action: what it has changed stays changed. One that has ended stays as it is."""
    id_ = str(action_id)
    await get(ctx, action_id)
    await ctx.run(ctx.calls.actions.abort(id_, ctx.caller.name, why.reason, ctx.view))
    return await find(ctx, id_)


async def find(ctx: RequestContext, id_: object) -> ActionInfo:
    """Return an action that the caller may see, or raise a 404."""
    return await ctx.found(ctx.calls.actions.get(str(id_), ctx.view), "action", id_)


def read_filter(ctx: RequestContext, which: ActionFilter) -> dict[str, Any]:
    """Return the filter as SQL reads it."""
    where = {name: plain(value) for name, value in given(which).items()}
    if not ctx.caller.everyone and where.get("tenant", ctx.caller.tenant) != ctx.caller.tenant:
        raise Problem(403, "body.filter.tenant: the token belongs to another tenant; leave it out")
    limits = ctx.hf.settings
    payload.check_limits(payload.encode(where, what := "body.filter"), what, limits.max_payload, limits.max_depth)
    return where


def _params(ctx: RequestContext, options: ActionOptions) -> dict[str, Any]:
    params = {name: plain(value) for name, value in given(options).items()}
    if "priority" in params:
        ctx.priority(params["priority"], params["priority"])
    return params


def plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    if isinstance(value, UUID):
        return text(value)
    return value.isoformat() if isinstance(value, Moment) else value
