-- What operators did, and what became of it. "before" and "after": the values that were changed; "after" also has the
-- parameters of an action on jobs.
create or replace view audit as
select id, started_at as at, by, kind, target, reason, before, params as after, filter, state, preview, matched, changed, skipped,
       finished_at, error, view_tenant as tenant
from actions;
