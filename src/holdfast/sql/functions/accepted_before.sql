-- Whether a job that was just inserted had been accepted before and has moved on to another table.
-- Called by: enqueue, after its insert: the insert waits for a finish under way, and this statement then sees where
--   that finish put the job. Looking first and inserting second would let the job run twice.
-- Locks: none.
-- Wakes: nobody.
create or replace function accepted_before(p_id uuid) returns boolean
language sql
set search_path from current
as $$
    select count(*) > 1 from (
        select from live where id = p_id
        union all select from later where id = p_id
        union all select from dead where id = p_id
        union all select from history where id = p_id) places
$$;
