-- Cancels up to p_limit jobs of a batch: waiting ones at once, running ones as cancel does. No job can be added from
-- now on. Returns the number of jobs it handled; call it again, committing each time, until that is 0.
-- Locks: the batch, waiting for transactions that add to it; then as cancel.
-- Wakes: the workers that run its jobs; the callback's queue when the batch ends here.
create or replace function cancel_batch(p_batch uuid, p_limit integer default 1000) returns integer
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v_ids uuid[];
begin
    perform 1 from batches where id = p_batch and finished_at is null and (open or not canceled) for update;
    update batches set canceled = true, open = false
    where id = p_batch and finished_at is null and (open or not canceled);
    v_ids := array(
        select id from later where batch = p_batch
        union all select l.id from live l
        where l.batch = p_batch and (l.token is null or not exists (select 1 from cancels c where c.id = l.id))
        limit p_limit);
    perform cancel(v_ids);
    if v_ids = '{}' then perform complete_batches(array[p_batch]); end if;
    return cardinality(v_ids);
end $$;
