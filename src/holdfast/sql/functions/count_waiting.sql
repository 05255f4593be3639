-- Returns how many jobs wait in some queues: exactly up to 10,000, above that an estimate, at a cost that does not grow with the backlog.
-- Behind a transaction that stays open, which keeps dead rows in the way of the index, it is an estimate always.
-- Called by: workers when a window or a pass begins; record_tick.
-- Locks: none.
-- Wakes: nobody.
create or replace function count_waiting(p_queues text[]) returns bigint
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    c_most    constant bigint := 10000;
    v_waiting bigint := 0;
begin
    if pg_stat_get_dead_tuples('live'::regclass) < 50000 then
        v_waiting := (select count(*) from (
            select 1 from live l where l.queue = any (p_queues) and l.token is null limit c_most) waiting);
        if v_waiting < c_most then
            return v_waiting;
        end if;
    end if;
    return greatest(v_waiting, (
        select coalesce(sum(s.waiting), 0) from sample_jobs('live', 800) s where s.queue = any (p_queues)));
end $$;
