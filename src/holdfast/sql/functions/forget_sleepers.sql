-- Removes sleepers whose connection is gone: what wakes them would be lost, and a job would wait for the next poll.
-- Called by: upkeep, every few seconds; an enqueue never looks.
-- Locks: sleepers rows, skipping locked ones.
-- Wakes: nobody.
--
-- A connection is the backend's process, the time it started and its name. The time is null where the owner of the schema may not
-- see it. The name tells a worker's connection from one that a pooler (PgBouncer, one session for each client) has given to
-- another client since.
create or replace function forget_sleepers() returns void
language plpgsql security definer
set search_path from current set jit = off
as $$
begin
    with alive as materialized (
        select a.pid, a.backend_start, a.application_name from pg_stat_get_activity(null) a)
    delete from sleepers where ctid = any (array(
        select s.ctid from sleepers s
        where not exists (
            select 1 from alive a where a.pid = s.backend and a.application_name = s.application
                and coalesce(a.backend_start = s.backend_start, true))
        for update skip locked));
end $$;
