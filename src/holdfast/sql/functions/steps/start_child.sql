-- Enqueue a child of a running job, once: p_job in the form of enqueue_many. Return started, existing (the job has a
-- step of that name) or lost (the token is no longer the job's).
-- Locks: the job's live row, the row of steps; then as enqueue and lock_predecessors.
-- Wakes: sleepers of the child's queue.
create or replace function start_child(p_id uuid, p_token bigint, p_name text, p_job jsonb) returns text
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
    v_begun text := begin_step(p_id, p_token, p_name, 'call', null, null); v_child uuid;
begin
    if v_begun <> 'started' then return v_begun; end if;
    select e.id into v_child from enqueue_many(jsonb_build_array(p_job), 'existing', true) e;
    perform lock_predecessors(array[v_child]);
    update steps set ref = v_child where job = p_id and name = p_name;
    return v_begun;
end $$;
