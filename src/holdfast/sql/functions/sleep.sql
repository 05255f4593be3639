-- Says that a worker waits for work on these queues (none for one that does not listen); returns in how many seconds the next delayed job is due, or a limit
-- opens by itself for which lanes of these queues wait.
-- Called by: workers that found nothing. They claim once more before they really wait, so that a job which was
-- committed between the empty claim and this row is not left for the next poll.
-- Locks: the worker's own sleepers rows. They name the connection, so that forget_sleepers() sees when it is gone.
-- Wakes: nobody.
create or replace function sleep(p_worker text, p_queues text[], p_listens boolean default true) returns double precision
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
    if p_listens and exists (
        select 1 from unnest(p_queues) q where not exists (
            select 1 from sleepers s where s.queue = q and s.worker = p_worker and s.backend = pg_backend_pid()
                and s.application = left(current_setting('application_name'), 63))) then
        insert into sleepers (queue, worker, backend, backend_start, application)
        select q, p_worker, a.pid, a.backend_start, a.application_name
        from unnest(p_queues) q, pg_stat_get_activity(pg_backend_pid()) a
        on conflict (queue, worker) do update set
            backend = excluded.backend, backend_start = excluded.backend_start, application = excluded.application;
    end if;
    -- Not what was due long ago: it has been promoted, and its index entries may still be in the way.
    return date_part('epoch', least(
        (select min(run_at) from later where run_at >= clock() - interval '10 seconds'),
        (select min(k.opens_at) from (select m.key, m.opens_at from limits m where m.opens_at is not null order by m.opens_at limit 100) k
         where exists (select 1 from lanes l where l.closed_by = k.key and l.queue = any (p_queues))),
        (select clock() from reopenings where exists (select 1 from rings r where r.queue = any (p_queues)) limit 1)) - clock());
end $$;
