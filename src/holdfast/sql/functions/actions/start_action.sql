-- Start an action on the jobs that match a filter, or on a list of up to 10,000 ids: a row that work_actions processes.
-- It never changes jobs that were enqueued, or died, after now. p_reason: why. p_tenant: the tenant that the caller may
-- see; null: all. p_deliveries: whether it may change deliveries of webhooks. Return the id; a repeated call with the
-- same p_id starts nothing.
create or replace function start_action(p_kind text, p_filter jsonb default null, p_ids uuid[] default null,
    p_params jsonb default '{}', p_by text default null, p_reason text default null, p_tenant text default null,
    p_deliveries boolean default true, p_id uuid default null) returns uuid
language plpgsql security definer set search_path from current as $$
declare
    v_id uuid := coalesce(p_id, uuid7()); v_seen record; v_ids uuid[]; v_where job_filter;
begin
    v_where := check_action(p_kind, case when p_ids is null then coalesce(p_filter, 'null') end, p_params, p_tenant);
    if p_ids is not null and p_filter is not null then
        raise exception 'an action has a filter or a list of ids, not both' using errcode = 'invalid_parameter_value', constraint = 'action';
    elsif p_ids is not null then
        v_ids := array(select distinct i from unnest(p_ids) i where i is not null order by i);
        if cardinality(v_ids) not between 1 and 10000 then
            raise exception 'a list must have 1 to 10,000 ids, got %; use a filter for more', cardinality(v_ids)
                using errcode = 'invalid_parameter_value', constraint = 'action';
        end if;
        select cardinality(v_ids) as matching, v_ids[:10] as examples into v_seen;
    else
        v_seen := preview_action(p_kind, p_filter, p_params, p_tenant, p_deliveries, '200 ms');
    end if;
    insert into actions (id, kind, target, by, reason, params, state, started_at, filter, ids, view_tenant, deliveries, preview,
                         examples, last_id)
    values (v_id, p_kind, case when cardinality(v_ids) = 1 then v_ids[1]::text end, left(coalesce(p_by, session_user), 200), left(p_reason, 1000),
            p_params, 'running', clock(), p_filter, v_ids, p_tenant, p_deliveries, v_seen.matching, v_seen.examples,
            last_job(v_where.status && '{failed,dead}'))
    on conflict do nothing;
    return v_id;
end $$;
