-- Returns the keys of the limits that apply to every job of a queue, task or tenant, if set.
create or replace function implicit_keys(p_queue text, p_task text, p_tenant text) returns text[]
language sql immutable parallel safe
as $$
    select array_remove(array['queue:' || p_queue, 'task:' || p_task, 'tenant:' || p_tenant], null)
$$;
