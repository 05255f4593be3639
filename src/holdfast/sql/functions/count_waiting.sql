-- How many jobs wait in some queues: exactly up to 10,000, above that about how many there are in all, so that asking costs the
-- same however many there are.
-- Called by: workers when a window or a pass begins; record_tick.
-- Locks: none.
-- Wakes: nobody.
create or replace function count_waiting(p_queues text[]) returns bigint
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    v_waiting bigint := (select count(*) from (
        select 1 from live l where l.queue = any (p_queues) and l.token is null limit 10000) waiting);
begin
    if v_waiting >= 10000 then
        return greatest(v_waiting, (select c.reltuples::bigint from pg_class c where c.oid = 'live'::regclass));
    end if;
    return v_waiting;
end $$;
