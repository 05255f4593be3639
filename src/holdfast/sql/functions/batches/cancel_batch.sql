-- Cancel up to p_limit jobs of a batch: waiting ones at once, running ones as cancel does. No job can be added from
-- now on. The call that closes it is recorded in actions if p_by or p_reason is given: programs cancel batches, too.
-- Return the number of jobs it handled; call it again, committing each time, until that is 0.
-- Locks: the batch, waiting for transactions that add to it; then as cancel.
-- Wakes: the workers that run its jobs; the callback's queue when the batch ends here.
create or replace function cancel_batch(p_batch uuid, p_limit integer default 1000, p_by text default null,
    p_reason text default null, p_view_tenant text default null) returns integer
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v_ids uuid[];
begin
    perform 1 from batches where id = p_batch and finished_at is null and (open or not canceled) for update;
    update batches set canceled = true, open = false
    where id = p_batch and finished_at is null and (open or not canceled);
    if found and coalesce(p_by, p_reason) is not null then
        perform record_action('batches.cancel', p_batch::text, p_by, p_reason, p_tenant => p_view_tenant);
    end if;
    v_ids := array(
        select id from later where batch = p_batch
        union all select l.id from live l
        where l.batch = p_batch and (l.token is null or not exists (select 1 from cancels c where c.id = l.id))
        limit p_limit);
    perform cancel(v_ids);
    if v_ids = '{}' then perform complete_batches(array[p_batch]); end if;
    return cardinality(v_ids);
end $$;
