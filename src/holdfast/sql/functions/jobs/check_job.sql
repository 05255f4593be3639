-- Reject a job that no worker could run, with a message that names the value.
create or replace function check_job(p_task text, p_queue text, p_tenant text, p_priority integer,
    p_max_attempts integer, p_payload jsonb, p_run_at timestamptz) returns void
language plpgsql immutable as $$
declare
    v_problem text := case
        when (length(p_task) between 1 and 200) is not true then
            format('a task name must have 1 to 200 characters, got %s', coalesce(left(p_task, 60), 'null'))
        when (length(p_queue) between 1 and 100 and p_queue !~ '[/,]' and p_queue = btrim(p_queue, E' \t\n\r\f\v')) is not true then
            format('a queue''s name must have 1 to 100 characters, no slash or comma, and no space at its start or end, got %s',
                   coalesce(quote_literal(left(p_queue, 60)), 'null'))
        when length(p_tenant) not between 1 and 200 then
            format('a tenant must have 1 to 200 characters, got %s', left(p_tenant, 60))
        when (p_priority between 0 and 3) is not true then
            format('priority must be 0 (critical), 1 (high), 2 (normal) or 3 (low), got %s', coalesce(p_priority::text, 'null'))
        when p_max_attempts not between 1 and 32000 then format('max_attempts must be from 1 to 32000, got %s', p_max_attempts)
        when jsonb_typeof(p_payload) is distinct from 'object' then
            format('a payload must be a JSON object of the task''s arguments, got %s', coalesce(jsonb_typeof(p_payload), 'null'))
        when p_run_at not between '1970-01-01' and '9999-12-31' then
            format('run_at must be a time from the year 1970 to 9999, got %s', p_run_at) end;
begin
    if v_problem is not null then raise exception '%', v_problem using errcode = 'invalid_parameter_value'; end if;
end $$;
