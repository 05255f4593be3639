-- Makes a worker known, with the tasks it can run and how their jobs are retried.
-- Called by: workers when they start.
-- Locks: the worker's row; tasks in name order.
-- Wakes: nobody.
create or replace function register_worker(
    p_worker text, p_host text, p_pid integer, p_version text, p_queues text[], p_concurrency integer, p_tasks jsonb)
returns void
language plpgsql security definer
set search_path from current
as $$
begin
    insert into workers (id, host, pid, version, queues, tasks, concurrency, started_at, heartbeat_at)
    values (p_worker, p_host, p_pid, p_version, p_queues,
            array(select t ->> 'name' from jsonb_array_elements(p_tasks) t order by 1), p_concurrency, clock(), clock())
    on conflict (id) do update set heartbeat_at = clock(), stopping = false;
    insert into tasks as k (name, queue, max_attempts, retry, timeout, updated_at)
    select t.name, t.queue, t.max_attempts, t.retry, make_interval(secs => t.timeout), clock()
    from jsonb_to_recordset(p_tasks)
        as t(name text, queue text, max_attempts smallint, retry jsonb, timeout double precision)
    order by t.name
    on conflict (name) do update
        set queue = excluded.queue, max_attempts = excluded.max_attempts, retry = excluded.retry,
            timeout = excluded.timeout, updated_at = excluded.updated_at
        where (k.queue, k.max_attempts, k.retry, k.timeout)
              is distinct from (excluded.queue, excluded.max_attempts, excluded.retry, excluded.timeout);
end $$;
