-- Cancels abandoned open batches: none of their jobs waits or runs, and nothing was added or ended since p_oldest. They
-- end as if the block that opened them had raised, and their callback is enqueued.
-- Locks: the batches, skipping locked ones; then as cancel_batch.
-- Wakes: the callback's queue.
create or replace function end_abandoned(p_limit integer, p_oldest timestamptz) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v_id uuid;
begin
    for v_id in select b.id from batches b
        where b.finished_at is null and b.open and b.created_at < p_oldest
          and not exists (select 1 from batch_counts c where c.batch = b.id and c.counted_at >= p_oldest)
          and not exists (select 1 from live l where l.batch = b.id)
          and not exists (select 1 from later l where l.batch = b.id)
        order by b.id limit p_limit for update of b skip locked
    loop
        perform cancel_batch(v_id);
    end loop;
end $$;
