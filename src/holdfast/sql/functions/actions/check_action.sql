-- Reject an invalid action on jobs: an unknown kind, parameters that do not belong to it, a filter for jobs that it
-- cannot change, or another tenant than that of the view. Return the filter with the statuses of the jobs
-- that the kind changes. p_filter null: the jobs are given by id.
create or replace function check_action(p_kind text, p_filter jsonb, p_params jsonb, p_tenant text) returns job_filter
language plpgsql immutable set search_path from current set datestyle = 'ISO' as $$
declare
    v_where job_filter; v_dead boolean := p_kind in ('retry', 'discard'); v_needs text; v_can job_status[];
begin
    v_needs := case p_kind when 'prioritize' then 'priority' when 'move' then 'queue' when 'reschedule' then 'run_at' end;
    if (p_kind in ('retry', 'discard', 'cancel', 'prioritize', 'move', 'reschedule')) is not true then
        raise exception 'an action must be retry, discard, cancel, prioritize, move or reschedule; got %', coalesce(quote_literal(left(p_kind, 60)), 'null')
            using errcode = 'invalid_parameter_value', constraint = 'action';
    elsif jsonb_typeof(p_params) is distinct from 'object' or array(select jsonb_object_keys(p_params)) <> array_remove(array[v_needs], null) then
        raise exception 'the parameters of % must be %, got %', p_kind, coalesce(format('{"%s": VALUE}', v_needs), '{}'), coalesce(left(p_params::text, 60), 'null')
            using errcode = 'invalid_parameter_value', constraint = 'action';
    elsif p_kind = 'prioritize' and p_params -> 'priority' not in ('0', '1', '2', '3') then
        raise exception 'priority must be 0 (critical), 1 (high), 2 (normal) or 3 (low), got %', left(p_params ->> 'priority', 60)
            using errcode = 'invalid_parameter_value', constraint = 'action';
    elsif p_kind = 'move' then
        perform check_job('-', case when jsonb_typeof(p_params -> 'queue') = 'string' then p_params ->> 'queue' end, null, 2, 1, '{}', clock());
    elsif p_kind = 'reschedule' then
        if not is_time(p_params -> 'run_at') then
            raise exception 'run_at must be a time with its zone, such as 2026-01-31T12:00:00Z, got %', left(p_params ->> 'run_at', 60)
                using errcode = 'invalid_parameter_value', constraint = 'action';
        end if;
        perform check_job('-', '-', null, 2, 1, '{}', (p_params ->> 'run_at')::timestamptz);
    end if;
    v_can := case when v_dead then array['failed', 'dead'] when p_kind = 'cancel' then array['queued', 'retrying', 'waiting', 'running']
                  else array['queued', 'retrying'] end::job_status[];
    if p_filter is null then
        v_where.status := v_can;
        return v_where;
    end if;
    v_where := read_filter(p_filter);
    if not coalesce(v_where.status <@ v_can, true) then
        raise exception '% changes jobs that are %, not %', p_kind, array_to_string(v_can, ' or '), array_to_string(v_where.status, ' or ')
            using errcode = 'invalid_parameter_value', constraint = 'action';
    elsif not v_dead and coalesce(v_where.error_group, v_where.finished_since::text, v_where.finished_until::text) is not null then
        raise exception '% changes jobs that have not ended; error_group, finished_since and finished_until match none of them', p_kind
            using errcode = 'invalid_parameter_value', constraint = 'action';
    elsif v_where.tenant <> p_tenant then
        raise exception 'the filter names tenant %, but the caller sees only jobs of %', quote_literal(left(v_where.tenant, 60)), quote_literal(p_tenant)
            using errcode = 'invalid_parameter_value', constraint = 'action';
    end if;
    v_where.status := coalesce(v_where.status, v_can);
    return v_where;
end $$;
