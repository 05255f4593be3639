-- Register a worker with the tasks it can run and their retry policies, at its start and when upkeep() reports that it
-- is not known. Return the changed tasks that another transaction holds: a worker starts without them and calls again.
-- Locks: the worker's row; tasks that have changed, in name order, skipping locked ones.
create or replace function register_worker(p_worker text, p_host text, p_pid integer, p_version text, p_queues text[],
    p_concurrency integer, p_tasks jsonb) returns text[]
language plpgsql security definer set search_path from current set lock_timeout = '100ms' as $$
declare
    v_changed text[]; v_held text[];
begin
    insert into workers (id, host, pid, version, queues, tasks, concurrency, started_at, heartbeat_at)
    values (p_worker, p_host, p_pid, p_version, p_queues,
            array(select t ->> 'name' from jsonb_array_elements(p_tasks) t order by 1), p_concurrency, clock(), clock())
    on conflict (id) do update set heartbeat_at = clock(), stopping = false;
    v_changed := array(
        select t.name from jsonb_to_recordset(p_tasks)
            as t(name text, queue text, max_attempts smallint, retry jsonb, timeout double precision)
        where not exists (
            select 1 from tasks k where k.name = t.name and (k.queue, k.max_attempts, k.retry, k.timeout)
                is not distinct from (t.queue::queue_name, t.max_attempts::attempt_limit, t.retry, make_interval(secs => t.timeout))));
    if v_changed = '{}' then return '{}'; end if;
    v_held := array(
        select k.name from tasks k where k.name = any (v_changed) and k.name <> all (array(
            select l.name from tasks l where l.name = any (v_changed) order by l.name for update skip locked)));
    begin
        insert into tasks as k (name, queue, max_attempts, retry, timeout, updated_at)
        select t.name, t.queue, t.max_attempts, t.retry, make_interval(secs => t.timeout), clock()
        from jsonb_to_recordset(p_tasks)
            as t(name text, queue text, max_attempts smallint, retry jsonb, timeout double precision)
        where t.name = any (v_changed) and t.name <> all (v_held) order by t.name
        on conflict (name) do update
            set queue = excluded.queue, max_attempts = excluded.max_attempts, retry = excluded.retry,
                timeout = excluded.timeout, updated_at = excluded.updated_at;
    exception when lock_not_available then  -- another transaction is inserting one of them
        v_held := v_changed;
    end;
    return v_held;
end $$;
