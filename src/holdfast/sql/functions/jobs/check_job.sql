-- Rejects a job that no worker could run, with a message that names the value.
create or replace function check_job(p_task text, p_queue text, p_tenant text, p_priority integer,
    p_max_attempts integer, p_payload jsonb, p_run_at timestamptz) returns void
language plpgsql immutable as $$
begin
    if p_task is null or length(p_task) not between 1 and 200 then
        raise exception 'a task name has 1 to 200 characters, got %', coalesce(left(p_task, 60), 'null')
            using errcode = 'invalid_parameter_value';
    elsif p_queue is null or length(p_queue) not between 1 and 100 or strpos(p_queue, '/') > 0 or strpos(p_queue, ',') > 0
          or p_queue <> btrim(p_queue, E' \t\n\r\f\v') then
        raise exception 'a queue name has 1 to 100 characters, no slash, no comma and no space at its ends, got %',
            coalesce(quote_literal(left(p_queue, 60)), 'null') using errcode = 'invalid_parameter_value';
    elsif length(p_tenant) not between 1 and 200 then
        raise exception 'a tenant has 1 to 200 characters, got %', left(p_tenant, 60)
            using errcode = 'invalid_parameter_value';
    elsif p_priority is null or p_priority not between 0 and 3 then
        raise exception 'priority is 0 (critical), 1 (high), 2 (normal) or 3 (low), got %', coalesce(p_priority::text, 'null')
            using errcode = 'invalid_parameter_value';
    elsif p_max_attempts not between 1 and 32000 then
        raise exception 'max_attempts is 1 to 32000, got %', p_max_attempts using errcode = 'invalid_parameter_value';
    elsif jsonb_typeof(p_payload) is distinct from 'object' then
        raise exception 'a payload is a JSON object of the task''s arguments, got %', coalesce(jsonb_typeof(p_payload), 'null')
            using errcode = 'invalid_parameter_value';
    elsif p_run_at not between '1970-01-01' and '9999-12-31' then
        raise exception 'run_at is a time from the year 1970 to 9999, got %', p_run_at
            using errcode = 'invalid_parameter_value';
    end if;
end $$;
