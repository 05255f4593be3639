-- Ends batches that nobody else has ended: the last job was canceled, expired or lost, or the worker stopped between a job's end and
-- complete_batches. Looks at some hundreds at a time, for p_within a call, and goes on there in the next: a round over a few
-- thousand batches takes one call, one over 50,000 less than a minute.
-- Called by: upkeep, by the leader alone.
-- Locks: as complete_batches; then the leader's row, without waiting for it.
-- Wakes: as complete_batches.
create or replace function walk_batches(p_within interval default '20 ms') returns void
language plpgsql
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    v_until timestamptz := clock_timestamp() + p_within;
    v_from  uuid := (select l.batch from leader l where l.chore = 'upkeep');
    v_at    uuid := v_from;
    v_ids   uuid[];
begin
    loop
        v_ids := array(
            select b.id from batches b
            where b.finished_at is null and b.id > coalesce(v_at, '00000000-0000-0000-0000-000000000000')
            order by b.id limit 200);
        v_at := v_ids[200];  -- null past the last one: the next call begins anew
        if v_ids <> '{}' then
            perform complete_batches(v_ids);
        end if;
        exit when v_at is null or clock_timestamp() > v_until;
    end loop;
    if v_at is distinct from v_from then
        update leader set batch = v_at
        where ctid = (select l.ctid from leader l where l.chore = 'upkeep' for update skip locked);
    end if;
end $$;
