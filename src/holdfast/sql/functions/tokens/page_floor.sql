-- Returns the id of the last of the p_jobs newest jobs before an id, in all tables or among the dead; null if there are
-- fewer. The service reads lists down to this id, so a page costs the same for each tenant, even one with ten jobs
-- among millions. Ids grow with time.
create or replace function page_floor(p_before uuid, p_jobs integer, p_dead boolean default false) returns uuid
language plpgsql stable security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off set enable_sort = off as $$
declare
    v_before uuid    := coalesce(p_before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
    v_skip integer := greatest(p_jobs, 1) - 1;
begin
    if p_dead then
        return (select d.id from dead d where d.id < v_before order by d.id desc offset v_skip limit 1);
    end if;
    return (
        -- The condition is outside the union: inside, a branch would lose its order and the whole union would be sorted.
        select j.id
        from (select l.id from live l union all select l.id from later l union all select d.id from dead d
              union all select h.id from history h) j
        where j.id < v_before order by j.id desc offset v_skip limit 1);
end $$;
