-- Stores what one bounded pass did, and answers how many jobs wait in its queues now: exactly up to 10,000, above that about
-- how many there are in all, so that asking costs the same however many there are.
-- Called by: hf.tick(), at its end.
-- Locks: none.
-- Wakes: nobody.
create or replace function record_tick(
    p_worker text, p_queues text[], p_seconds double precision, p_claimed integer, p_processed integer, p_succeeded integer,
    p_failed integer, p_throttled integer, p_contention integer, p_tenants jsonb, out id uuid, out depth bigint)
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
begin
    id := uuid7();
    depth := (select count(*) from (
        select 1 from live l where l.queue = any (p_queues) and l.token is null limit 10000) waiting);
    if depth >= 10000 then
        depth := greatest(depth, (select c.reltuples::bigint from pg_class c where c.oid = 'live'::regclass));
    end if;
    insert into ticks (id, worker, started_at, ended_at, claimed, processed, succeeded, failed, throttled, contention,
                       depth, tenants)
    values (record_tick.id, p_worker, clock() - make_interval(secs => p_seconds), clock(), p_claimed, p_processed,
            p_succeeded, p_failed, p_throttled, p_contention, record_tick.depth, p_tenants);
end $$;
