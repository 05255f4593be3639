-- Register an application's schedules when a worker starts, given as a JSON array of objects (name, task, cron, zone,
-- missed, payload, and options: other parameters of enqueue_many). A schedule that is new, or has another cron
-- expression or zone, counts slots from now on; any other keeps next_at, so that a restart loses no slot. A pause
-- stays. The upkeep leader reads the changes in its next round. Return the changed schedules that another transaction
-- holds (an open pause_schedule()): a worker starts without them and calls again.
-- Locks: schedules in name order, skipping locked ones.
create or replace function register_schedules(p_schedules jsonb) returns text[]
language plpgsql security definer set search_path from current set lock_timeout = '100ms' as $$
declare
    v_names text[] := array(select s ->> 'name' from jsonb_array_elements(p_schedules) s); v_held text[];
begin
    perform check_job(s.task, coalesce(s.options ->> 'queue', 'default'), s.options ->> 'tenant',
                      coalesce((s.options ->> 'priority')::integer, 2), (s.options ->> 'max_attempts')::integer,
                      s.payload, clock()),
            check_keys(array(select jsonb_array_elements_text(nullif(s.options -> 'keys', 'null'))))
    from jsonb_to_recordset(p_schedules) as s(task text, payload jsonb, options jsonb);
    v_held := array(
        select k.name from schedules k where k.name = any (v_names) and k.name <> all (array(
            select l.name from schedules l where l.name = any (v_names) order by l.name for update skip locked)));
    insert into schedules as k (name, task, cron, zone, missed, payload, options, next_at, registered_at)
    select s.name, s.task, s.cron, s.zone, s.missed, s.payload, coalesce(s.options, '{}'), clock(), clock()
    from jsonb_populate_recordset(null::schedules, p_schedules) s
    where s.name <> all (v_held) order by s.name
    on conflict (name) do update
        set task = excluded.task, cron = excluded.cron, zone = excluded.zone, missed = excluded.missed,
            payload = excluded.payload, options = excluded.options, registered_at = excluded.registered_at,
            problem = null,
            next_at = case when (k.cron, k.zone) is not distinct from (excluded.cron, excluded.zone) then k.next_at
                           -- The insert may have waited for a firing later than its clock().
                           else greatest(excluded.next_at, k.last_at + interval '1 microsecond') end;
    return array(
        select s.name from jsonb_populate_recordset(null::schedules, p_schedules) s
        where s.name = any (v_held) and not exists (
            select 1 from schedules k where k.name = s.name and (k.task, k.cron, k.zone, k.missed, k.payload, k.options)
                is not distinct from (s.task, s.cron, s.zone, s.missed, s.payload, coalesce(s.options, '{}'))));
exception when lock_not_available then  -- another transaction is inserting one of them
    return v_names;
end $$;
