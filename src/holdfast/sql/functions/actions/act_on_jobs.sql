-- Change up to 1,000 jobs at once and record who did it and why: retry, discard, cancel, prioritize, move or
-- reschedule. Return the outcome of each: changed or unchanged; for cancel as cancel does. Programs that act on their
-- own jobs call cancel, retry_dead and discard_dead, which record nothing (decision 033).
-- Locks: as make_change.
create or replace function act_on_jobs(p_kind text, p_ids uuid[], p_params jsonb default '{}', p_by text default null,
    p_reason text default null, p_tenant text default null, p_deliveries boolean default true)
    returns table (id uuid, outcome text)
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
#variable_conflict use_column
declare
    v_now timestamptz := clock(); v_ids uuid[] := array(select distinct i from unnest(p_ids) i where i is not null order by i);
    v_seen uuid[]; v_changed uuid[]; v_how jsonb := '{}';
begin
    perform check_action(p_kind, null, p_params, p_tenant);
    if cardinality(v_ids) > 1000 then
        raise exception 'at most 1,000 jobs can be changed at once, got %; start an action instead', cardinality(v_ids)
            using errcode = 'invalid_parameter_value', constraint = 'action';
    end if;
    v_seen := seen_jobs(p_tenant is null, p_tenant, p_deliveries, v_ids);
    if p_kind = 'cancel' then
        v_how := coalesce((select jsonb_object_agg(c.id, c.outcome) from cancel(v_seen) c), '{}');
        v_changed := array(select h.key::uuid from jsonb_each_text(v_how) h where h.value in ('canceled', 'canceling'));
    else
        v_changed := make_change(p_kind, p_params, v_seen);
    end if;
    insert into actions (id, kind, target, by, reason, params, started_at, finished_at, ids, view_tenant, deliveries, preview,
                         scanned, matched, changed, skipped)
    select uuid7(), p_kind, case when n = 1 then v_ids[1]::text end, left(coalesce(p_by, session_user), 200), left(p_reason, 1000),
           p_params, v_now, clock(), v_ids, p_tenant, p_deliveries, n, n, n, cardinality(v_changed), n - cardinality(v_changed)
    from (select cardinality(v_ids) as n) c where n > 0;
    return query select i, case when p_kind = 'cancel' then coalesce(v_how ->> i::text, 'unknown')
                                when i = any (v_changed) then 'changed' else 'unchanged' end from unnest(v_ids) i;
end $$;
