-- Record what an operator did: kind and target, who and why, and the values before and after. No secrets: callers pass
-- names and numbers. p_tenant: the tenant that did it and sees it in its actions; null for an operator.
create or replace function record_action(p_kind text, p_target text, p_by text default null, p_reason text default null,
    p_before jsonb default null, p_after jsonb default '{}', p_tenant text default null) returns void
language sql set search_path from current as $$
    insert into actions (id, kind, target, by, reason, before, params, started_at, finished_at, view_tenant)
    values (uuid7(), p_kind, left(p_target, 1000), left(coalesce(p_by, session_user), 200), left(p_reason, 1000), p_before, coalesce(p_after, '{}'), clock(),
            clock(), p_tenant)
$$;
