-- Close a batch: it ends when its last job has ended, or now if all have. Jobs can be added until it has ended.
-- Return whether there was an open batch with this id.
-- Locks: the batch. Wakes: as complete_batches.
create or replace function close_batch(p_batch uuid) returns boolean
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v_open boolean;
begin
    update batches set open = false where id = p_batch and open;
    v_open := found;
    if v_open then perform complete_batches(array[p_batch]); end if;
    return v_open;
end $$;
