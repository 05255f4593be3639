-- Open a batch: jobs may be added until it has ended, and it cannot end before it is closed. p_on_done is a job in the
-- form of enqueue_many, enqueued once when the last job of the batch has ended; an invalid one is rejected now. A
-- repeated call with the same id changes nothing.
create or replace function open_batch(p_id uuid, p_name text, p_tenant text default null, p_on_done jsonb default null)
    returns void
language plpgsql security definer set search_path from current as $$
begin
    if jsonb_typeof(p_on_done) <> 'object' then
        raise exception 'on_done must be a job in the form of enqueue_many, got %', left(p_on_done::text, 60)
            using errcode = 'invalid_parameter_value';
    elsif p_on_done is not null then
        perform (p_on_done ->> 'id')::uuid, (p_on_done ->> 'batch')::uuid, check_job(
            p_on_done ->> 'task', coalesce(p_on_done ->> 'queue', 'default'), p_on_done ->> 'tenant',
            coalesce((p_on_done ->> 'priority')::integer, 2), coalesce((p_on_done ->> 'max_attempts')::integer, 1),
            coalesce(p_on_done -> 'payload', '{}'), (p_on_done ->> 'run_at')::timestamptz),
            check_keys(array(select jsonb_array_elements_text(nullif(p_on_done -> 'keys', 'null'))));
    end if;
    insert into batches (id, name, tenant, open, on_done, created_at)
    values (p_id, p_name, p_tenant, true, p_on_done, clock()) on conflict do nothing;
end $$;
