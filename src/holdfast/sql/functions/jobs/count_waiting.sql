-- Return how many jobs wait in the given queues: exact up to 10,000, above that an estimate, at a cost that does not
-- grow with the backlog. With many dead rows in live, which an open transaction may keep from being removed, it is
-- always an estimate.
create or replace function count_waiting(p_queues text[]) returns bigint
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
    c_most constant bigint := 10000; v_waiting bigint := 0;
begin
    if pg_stat_get_dead_tuples('live'::regclass) < 50000 then
        v_waiting := (select count(*) from (
            select 1 from live l where l.queue = any (p_queues) and l.token is null limit c_most) waiting);
        if v_waiting < c_most then return v_waiting; end if;
    end if;
    return greatest(v_waiting, (
        select coalesce(sum(s.waiting), 0) from sample_jobs('live', 800) s where s.queue = any (p_queues)));
end $$;
