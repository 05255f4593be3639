-- Closes a batch: from now on it ends when its last job has ended. One whose jobs have all ended, ends now. Answers
-- whether there was an open batch of this id.
-- Called by: clients, at the end of adding. Jobs may still be added later, as long as the batch has not ended.
-- Locks: the batch.
-- Wakes: as complete_batches.
create or replace function close_batch(p_batch uuid) returns boolean
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off
as $$
declare
    v_open boolean;
begin
    update batches set open = false where id = p_batch and open;
    v_open := found;
    if v_open then
        perform complete_batches(array[p_batch]);
    end if;
    return v_open;
end $$;
