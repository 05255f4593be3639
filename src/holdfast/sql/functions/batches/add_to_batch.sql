-- Count p_jobs as added to a batch, and raise an error if it has ended. The jobs are inserted in the same
-- transaction: by enqueue, or by a client's COPY into live.
-- Locks: the batch (key share) until the caller's transaction ends. Until then it can be closed, but neither end nor be
--   canceled, so no job is added to a batch that has ended.
create or replace function add_to_batch(p_batch uuid, p_jobs bigint default 1) returns void
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v_batch batches;
begin
    if p_jobs is null or p_jobs < 0 then
        raise exception 'the number of jobs to add must be 0 or more, got %', p_jobs using errcode = 'invalid_parameter_value';
    end if;
    select * into v_batch from batches where id = p_batch for key share;
    if not found then
        raise exception 'there is no batch %', p_batch using errcode = 'invalid_parameter_value';
    elsif v_batch.finished_at is not null or v_batch.canceled then
        raise exception 'batch % (%) has % and takes no more jobs', p_batch, v_batch.name,
            case when v_batch.canceled then 'been canceled' else 'ended' end using errcode = 'invalid_parameter_value';
    end if;
    perform count_batch(p_batch, p_jobs, 0, 0, 0);
end $$;
