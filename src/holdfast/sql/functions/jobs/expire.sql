-- Cancel jobs whose deadline passed before they started; claims skip them. Return their number.
-- Locks: the jobs, skipping locked ones; then as cancel_waiting.
create or replace function expire(p_limit integer default 1000) returns integer
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
    v_ids uuid[];
begin
    v_ids := array(select id from live where deadline <= clock() and token is null
                   order by deadline limit p_limit for update skip locked)
          || array(select id from later where deadline <= clock()
                   order by deadline limit p_limit for update skip locked);
    if v_ids = '{}' then return 0; end if;
    return count(*) from cancel_waiting(v_ids, jsonb_build_object(
        'type', 'DeadlineExpired', 'code', 'DEADLINE_EXPIRED',
        'message', 'its deadline passed while it waited to be started'));
end $$;
