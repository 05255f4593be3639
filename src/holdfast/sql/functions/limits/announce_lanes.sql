-- Announce the lanes of jobs that a client has copied into live. All have one queue, priority and tenant; p_keys is a
-- JSON array with the limit keys of each lane (null: none). Without this call the next claim would not find the lanes.
-- The transaction must have set holdfast.announces to "on", so that live's trigger does not announce each job by
-- itself.
-- Wakes: sleepers of the queue.
create or replace function announce_lanes(p_queue text, p_priority integer, p_tenant text, p_keys jsonb, p_jobs bigint)
    returns void
language plpgsql security definer set search_path from current as $$
begin
    insert into arrivals (queue, priority, lane, run_at, tenant, keys)
    select p_queue, p_priority, lane_of(p_tenant, k.keys), transaction_timestamp(), p_tenant, k.keys
    from jsonb_array_elements(p_keys) as e(keys) cross join lateral (
        select case when jsonb_typeof(e.keys) = 'array' then array(select jsonb_array_elements_text(e.keys)) end as keys) k;
    perform set_config('holdfast.announces', '', true);
    perform wake(p_queue, p_jobs);
end $$;
