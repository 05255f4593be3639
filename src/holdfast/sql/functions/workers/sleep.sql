-- Record that a worker waits for work on these queues, if it listens. Return the number of seconds until the next
-- delayed job is due, or until a limit opens by itself for which lanes of these queues wait. Workers call it after an
-- empty claim, and claim once more before they wait: a job committed between the two is then not left for the next
-- poll.
-- Locks: the worker's own sleepers rows. They identify the connection, so that forget_sleepers() can detect that it is
--   gone.
create or replace function sleep(p_worker text, p_queues text[], p_listens boolean default true)
    returns double precision
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
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
    -- Jobs due long ago have been promoted, but their index entries may still slow down the scan.
    return date_part('epoch', least(
        (select min(run_at) from later where run_at >= clock() - interval '10 seconds'),
        (select min(k.opens_at) from (select m.key, m.opens_at from limits m where m.opens_at is not null order by m.opens_at limit 100) k
         where exists (select 1 from lanes l where l.closed_by = k.key and l.queue = any (p_queues))),
        (select clock() from reopenings where exists (select 1 from rings r where r.queue = any (p_queues)) limit 1)) - clock());
end $$;
