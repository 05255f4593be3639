-- One round of upkeep: takes or keeps the lead and, if it has it, promotes due jobs and reclaims expired leases.
-- Called by: each worker's upkeep loop, once every few seconds; one call keeps an idle fleet quiet.
-- Locks: the leader row for a moment, then as promote and reclaim, all of which skip what others hold.
-- Wakes: sleepers of queues that got due jobs.
create or replace function upkeep(
    p_worker text, p_ttl interval, out term bigint, out promoted integer, out reclaimed jsonb)
language plpgsql security definer
set search_path from current set enable_seqscan = off
as $$
declare
    v_ids uuid[];
begin
    term := take_lead('upkeep', p_worker, p_ttl);
    promoted := 0;
    reclaimed := '[]';
    if term is not null then
        v_ids := promote(1000);
        promoted := cardinality(v_ids);
        perform wake(l.queue, count(*)) from live l where l.id = any (v_ids) group by l.queue;
        select coalesce(jsonb_agg(jsonb_build_object('worker', r.worker, 'jobs', cardinality(r.ids))), '[]')
        into reclaimed from reclaim() r;
    end if;
end $$;
