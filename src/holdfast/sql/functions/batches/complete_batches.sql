-- End those of the given batches whose jobs have all ended; null checks all batches, which reads all counters.
-- Enqueue the callback and mark the batch in one transaction, so the callback is enqueued exactly once. Return the
-- ids.
-- Locks: the batches, in id order, once all their jobs seem to have ended. A batch that another transaction holds, or
--   whose callback cannot be enqueued, is left for the leader's next round, so that no worker waits and no other batch
--   fails. A call waits 100 ms for the first locked batch, and not at all for further ones.
-- Wakes: sleepers of the callback's queue; the job that waits for the batch in ctx.gather().
create or replace function complete_batches(p_ids uuid[] default null) returns setof uuid
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set lock_timeout = '100ms' as $$
declare
    v_id uuid; v_batch batches;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        return;  -- an old snapshot does not show jobs added meanwhile
    end if;
    for v_id in
        -- Always by id: one condition for "all or these" would read every batch under way to find one.
        select b.id from batches b
        where b.id = any (coalesce(p_ids, array(select u.id from batches u where u.finished_at is null)))
          and b.finished_at is null and not b.open and (
            select sum(added) <= sum(succeeded + failed + canceled) from batch_counts c where c.batch = b.id) is not false
        order by b.id
    loop
        begin
            select * into v_batch from batches where id = v_id and finished_at is null for update;
            -- Checked again in a statement of its own, which sees what was committed while the lock was waited for.
            if found and (select sum(added) <= sum(succeeded + failed + canceled) from batch_counts
                          where batch = v_id) is not false then
                update batches set finished_at = clock() where id = v_id;
                if v_batch.on_done is not null then perform enqueue_many(jsonb_build_array(v_batch.on_done)); end if;
                perform end_parent_waits(v_id, batch_result(v_id));
                return next v_id;
            end if;
        exception
            when lock_not_available then  -- one wait is enough: a transaction may hold hundreds of batches
                perform set_config('lock_timeout', '1ms', true);
            when others then raise warning 'batch % cannot end, its callback cannot be enqueued: %', v_id, sqlerrm;
        end;
    end loop;
end $$;
