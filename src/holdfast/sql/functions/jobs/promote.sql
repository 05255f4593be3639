-- Move jobs that have become due from later into live, earliest first, and return their ids. It wakes no worker: the
-- caller knows whether one is needed. With p_since, only jobs that became due within it. That spares a claim the index
-- entries of jobs moved long ago, which a long transaction elsewhere keeps alive. The leader checks all due jobs in
-- each round, or less often if that is slow (upkeep).
-- Locks: later rows in order of run_at, skipping locked ones.
create or replace function promote(p_limit integer default 1000, p_since interval default null) returns uuid[]
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
    v_ids uuid[]; v_now timestamptz := clock();
begin
    -- By ctid: a join could be planned for an empty table and then read all of a full one (decision 011).
    with moved as (
        delete from later where ctid = any (array(
            select l.ctid from later l where l.run_at <= v_now and l.run_at >= coalesce(v_now - p_since, '-infinity')
            order by l.run_at, l.id limit p_limit for update skip locked))
        returning *),
    placed as (insert into live select * from moved on conflict do nothing returning id)
    select array_agg(id) into v_ids from placed;
    return coalesce(v_ids, '{}');
end $$;
