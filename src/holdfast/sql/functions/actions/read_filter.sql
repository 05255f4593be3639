-- Return a filter of jobs, checked: {"status": TEXT or LIST, "task" (a task name, or a prefix such as "mail.*"),
-- "queue", "tenant", "batch", "error" (type or code of the last error), "error_group" (a fingerprint), "since", "until"
-- (of the creation), "finished_since", "finished_until" (times with their zone), "args" (arguments that the job must
-- have)}. All that are given must hold. Refuse an empty one.
create or replace function read_filter(p_filter jsonb) returns job_filter
language plpgsql immutable set search_path from current set datestyle = 'ISO' as $$
declare
    v_fields text[] := array['status', 'task', 'queue', 'tenant', 'batch', 'error', 'error_group',
                             'since', 'until', 'finished_since', 'finished_until', 'args'];
    v_name text; v_value jsonb; v_read job_filter;
begin
    if jsonb_typeof(p_filter) is distinct from 'object' then
        raise exception 'a filter must be a JSON object such as {"task": "mail"}, got %', coalesce(jsonb_typeof(p_filter), 'null')
            using errcode = 'invalid_parameter_value', constraint = 'action';
    elsif p_filter = '{}' then
        raise exception 'the filter is empty and would match every job; give at least one of %', array_to_string(v_fields, ', ')
            using errcode = 'invalid_parameter_value', constraint = 'action';
    end if;
    for v_name, v_value in select key, value from jsonb_each(p_filter) loop
        if v_name <> all (v_fields) then
            raise exception 'a filter has no field %; it has %', quote_literal(left(v_name, 60)), array_to_string(v_fields, ', ')
                using errcode = 'invalid_parameter_value', constraint = 'action';
        end if;
        perform check_filter_value(v_name, v_value);
    end loop;
    if p_filter ? 'status' then
        v_read.status := array(
            select s::job_status from jsonb_array_elements_text(
                case jsonb_typeof(p_filter -> 'status') when 'array' then p_filter -> 'status'
                     else jsonb_build_array(p_filter -> 'status') end) s);
    end if;
    v_read.task := p_filter ->> 'task';
    v_read.queue := p_filter ->> 'queue';
    v_read.tenant := p_filter ->> 'tenant';
    v_read.batch := (p_filter ->> 'batch')::uuid;
    v_read.error := p_filter ->> 'error';
    v_read.error_group := p_filter ->> 'error_group';
    v_read.since := (p_filter ->> 'since')::timestamptz;
    v_read.until := (p_filter ->> 'until')::timestamptz;
    v_read.finished_since := (p_filter ->> 'finished_since')::timestamptz;
    v_read.finished_until := (p_filter ->> 'finished_until')::timestamptz;
    v_read.args := p_filter -> 'args';
    if v_read.since >= v_read.until or v_read.finished_since >= v_read.finished_until then
        raise exception 'the time span of the filter is empty: its end is not after its beginning'
            using errcode = 'invalid_parameter_value', constraint = 'action';
    end if;
    return v_read;
end $$;
