-- Remove sleepers whose connection is gone: notifications to them are lost, and a job would wait for the next poll.
-- Enqueue never checks; upkeep calls this every few seconds. A connection is identified by the backend's process id,
-- its start time and the application name. The start time is null if the schema's owner may not see it. The name shows
-- whether a pooler (PgBouncer in session mode) has given the connection to another client.
-- Locks: sleepers rows, skipping locked ones.
create or replace function forget_sleepers() returns void
language plpgsql security definer set search_path from current set jit = off as $$
begin
    with alive as materialized (select a.pid, a.backend_start, a.application_name from pg_stat_get_activity(null) a)
    delete from sleepers where ctid = any (array(
        select s.ctid from sleepers s
        where not exists (
            select 1 from alive a where a.pid = s.backend and a.application_name = s.application
                and coalesce(a.backend_start = s.backend_start, true))
        for update skip locked));
end $$;
