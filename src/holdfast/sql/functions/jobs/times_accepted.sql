-- Return in how many tables a job is: 0 never accepted, 1 accepted, 2 accepted before and inserted just now. Needed
-- for ids that may have been sent before, and for messages whose key may be removed.
create or replace function times_accepted(p_id uuid) returns bigint
language sql set search_path from current set jit = off set enable_seqscan = off as $$
    select count(*) from (
        select from live where id = p_id
        union all select from later where id = p_id
        union all select from dead where id = p_id
        union all select from history where id = p_id) places
$$;
