-- Ends those batches (all when p_ids is null, which reads the counters of all) whose jobs have all ended: enqueues the callback and
-- marks the batch, in one transaction, so that the callback is enqueued exactly once. Returns the ids.
-- Called by: workers after they have committed the end of a batch's jobs, close_batch, cancel_batch, walk_batches.
-- Locks: the batches, in id order, once all their jobs seem to have ended. One that is held by a caller's transaction, or
--   whose callback cannot be enqueued, is left for the leader's next round: a worker must not wait for it, nor others fail.
--   A call waits 100 ms for the first of those, and for the others not at all.
-- Wakes: sleepers of the callback's queue.
create or replace function complete_batches(p_ids uuid[] default null) returns setof uuid
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off set lock_timeout = '100ms'
as $$
declare
    v_id    uuid;
    v_batch batches;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        return;  -- it sees the past, and not what was added meanwhile
    end if;
    for v_id in
        -- By id always: "all or these" in one condition would read every batch under way for one.
        select b.id from batches b
        where b.id = any (coalesce(p_ids, array(select u.id from batches u where u.finished_at is null)))
          and b.finished_at is null and not b.open and (
            select sum(added) <= sum(succeeded + failed + canceled) from batch_counts c where c.batch = b.id) is not false
        order by b.id
    loop
        begin
            select * into v_batch from batches where id = v_id and finished_at is null for update;
            -- Once more, in a statement of its own: it sees what was committed while that one waited for the lock.
            if found and (select sum(added) <= sum(succeeded + failed + canceled) from batch_counts
                          where batch = v_id) is not false then
                update batches set finished_at = clock() where id = v_id;
                if v_batch.on_done is not null then
                    perform enqueue_many(jsonb_build_array(v_batch.on_done));
                end if;
                return next v_id;
            end if;
        exception
            when lock_not_available then  -- one wait is enough: a transaction may hold hundreds of batches
                perform set_config('lock_timeout', '1ms', true);
            when others then raise warning 'batch % cannot end, its callback cannot be enqueued: %', v_id, sqlerrm;
        end;
    end loop;
end $$;
