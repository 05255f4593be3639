-- Return the id of the last of the p_jobs newest jobs before an id, or null if there are fewer: in all tables, or in
-- those of p_places; with p_messages, of messages of the outbox. The service reads lists down to this id, so a page
-- costs the same for each tenant, even one with ten jobs among millions. Ids grow with time.
create or replace function page_floor(p_before uuid, p_jobs integer, p_places text[] default null, p_messages boolean default false)
returns uuid language plpgsql stable security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off set enable_sort = off as $$
declare
    v_before uuid := coalesce(p_before, 'ffffffff-ffff-ffff-ffff-ffffffffffff');
    v_skip integer := greatest(p_jobs, 1) - 1; v_tables text; v_floor uuid;
begin
    if p_places is null and not p_messages then
        return (
            -- The condition is outside the union: inside, a branch would lose its order and the whole union would be sorted.
            select j.id
            from (select l.id from live l union all select l.id from later l union all select d.id from dead d
                  union all select h.id from history h) j
            where j.id < v_before order by j.id desc offset v_skip limit 1);
    end if;
    select string_agg(format('select id, task from %I', t.name), ' union all ') into v_tables
    from unnest(array['live', 'later', 'dead', 'history']) as t(name) where t.name = any (p_places) or p_places is null;
    execute format('select j.id from (%s) j where j.id < $1 %s order by j.id desc offset $2 limit 1', v_tables,
                   case when p_messages then 'and starts_with(j.task, ''channel:'')' end)
    into v_floor using v_before, v_skip;
    return v_floor;
end $$;
