-- Counts p_jobs as added to a batch, or raises when it has ended. In the same transaction the jobs are inserted.
-- Called by: enqueue, enqueue_many, and clients beside a COPY into live.
-- Locks: the batch (key share) until the caller's transaction ends: it cannot end, or be canceled, before these jobs are
--   there to be seen; it may be closed.
-- Wakes: nobody.
create or replace function add_to_batch(p_batch uuid, p_jobs bigint default 1) returns void
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off
as $$
declare
    v_batch batches;
begin
    if p_jobs is null or p_jobs < 0 then
        raise exception 'a batch cannot be made smaller: got % jobs', p_jobs using errcode = 'invalid_parameter_value';
    end if;
    select * into v_batch from batches where id = p_batch for key share;
    if not found then
        raise exception 'there is no batch %', p_batch using errcode = 'invalid_parameter_value';
    elsif v_batch.finished_at is not null or v_batch.canceled then
        raise exception 'batch % (%) has % and takes no more jobs', p_batch, v_batch.name,
            case when v_batch.canceled then 'been canceled' else 'ended' end
            using errcode = 'invalid_parameter_value';
    end if;
    perform count_batch(p_batch, p_jobs, 0, 0, 0);
end $$;
