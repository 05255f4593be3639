-- Open the batch of a running job's children, once. Its jobs are enqueued in the same transaction, which then closes
-- it. p_detail: {"first", "last"}, the range of their ids. Return started, existing (the job has a step of that name)
-- or lost (the token is no longer the job's).
-- Locks: the job's live row; the row of steps.
create or replace function start_batch(p_id uuid, p_token bigint, p_name text, p_batch uuid, p_tenant text, p_detail jsonb) returns text
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
    v_begun text := begin_step(p_id, p_token, p_name, 'batch', p_batch, p_detail);
begin
    if v_begun = 'started' then perform open_batch(p_batch, p_name, p_tenant); end if;
    return v_begun;
end $$;
