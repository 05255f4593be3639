-- One round of upkeep: takes or keeps the lead and, if it has it, promotes due jobs, reclaims expired leases,
-- expires jobs past their deadline and ends batches that nobody else has ended. Says in how many seconds the next slot of
-- a schedule comes due; null when there is none.
-- Called by: each worker's upkeep loop, once every few seconds; one call keeps an idle fleet quiet.
-- Locks: the leader row for a moment, then as promote and reclaim, all of which skip what others hold.
-- Wakes: sleepers of queues that got due jobs.
create or replace function upkeep(
    p_worker text, p_ttl interval, out term bigint, out promoted integer, out reclaimed jsonb, out expired integer,
    out next_slot double precision)
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off
as $$
declare
    v_ids uuid[];
begin
    term := take_lead('upkeep', p_worker, p_ttl);
    promoted := 0;
    expired := 0;
    reclaimed := '[]';
    if term is not null then
        v_ids := promote(1000);
        promoted := cardinality(v_ids);
        perform wake(l.queue, count(*)) from live l where l.id = any (v_ids) group by l.queue;
        select coalesce(jsonb_agg(jsonb_build_object('worker', r.worker, 'jobs', cardinality(r.ids))), '[]')
        into reclaimed from reclaim() r;
        expired := expire(1000);
        perform complete_batches();
        next_slot := (select extract(epoch from min(s.next_at) - clock()) from schedules s where not s.paused);
    end if;
end $$;
