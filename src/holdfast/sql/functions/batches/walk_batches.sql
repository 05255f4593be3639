-- End complete batches that no other call has ended: the last job was canceled, expired or lost, or the worker stopped
-- between a job's end and complete_batches. The leader calls it. A call checks 200 batches at a time for p_within, and
-- the next one continues there: a few thousand batches take one call, 50,000 less than a minute.
-- Locks: as complete_batches; then the leader's row, without waiting for it. Wakes: as complete_batches.
create or replace function walk_batches(p_within interval default '20 ms') returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_until timestamptz := clock_timestamp() + p_within;
    v_from uuid := (select l.batch from leader l where l.chore = 'upkeep'); v_at uuid := v_from; v_ids uuid[];
begin
    loop
        v_ids := array(
            select b.id from batches b
            where b.finished_at is null and b.id > coalesce(v_at, '00000000-0000-0000-0000-000000000000')
            order by b.id limit 200);
        v_at := v_ids[200];  -- null after the last one: the next call starts from the beginning
        if v_ids <> '{}' then perform complete_batches(v_ids); end if;
        exit when v_at is null or clock_timestamp() > v_until;
    end loop;
    if v_at is distinct from v_from then
        update leader set batch = v_at
        where ctid = (select l.ctid from leader l where l.chore = 'upkeep' for update skip locked);
    end if;
end $$;
