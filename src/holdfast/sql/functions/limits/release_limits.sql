-- Append what ended jobs release to `releases`, which the next claim folds. The end of a job never waits for the ring.
-- Locks: orders that the jobs kept. Wakes: sleepers of queues in which lanes wait for one of the keys.
create or replace function release_limits(p_freed freed[]) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set plan_cache_mode = force_generic_plan as $$
declare
    v_probing boolean := exists (select 1 from limits m where m.probe is not null); v_ended released[];
begin
    v_ended := array(
        select (k.key, count(*), count(*) filter (where f.went > 0),
                count(*) filter (where f.went < 0 and coalesce(k.key = any (f.counts), true)),
                case when v_probing then (
                    select max(case when f.went >= 0 or coalesce(k.key = any (f.counts), true) then f.went else 0 end)
                        filter (where f.id = (select m.probe from limits m where m.key = k.key))) end)::released
        from unnest(p_freed) f cross join unnest(f.keys) as k(key) group by k.key);
    insert into releases (ended) values (v_ended);
    if exists (select 1 from kept_orders) then
        delete from kept_orders where key = any (array(select e.key from unnest(v_ended) e));
    end if;
    if exists (select 1 from sleepers) then
        perform wake(w.queue, w.lanes) from (
            select l.queue, count(*) as lanes from unnest(v_ended) k cross join lateral (
                select l.queue from lanes l where l.closed_by = k.key limit 8) l
            group by l.queue) w;
    end if;
end $$;
