-- The rings of a queue and priority that have an open lane: true for that of direct lanes, which comes first, false for the other.
-- Called by: claim.
-- Locks: none.
-- Wakes: nobody.
create or replace function open_rings(p_queue text, p_priority integer) returns boolean[]
language plpgsql stable
as $$
begin
    return array(
        select r.direct from rings r cross join lateral (
            select 1 from flows s
            where s.queue = r.queue and s.priority = r.priority and s.direct = r.direct and s.open and s.tag >= r.front and s.flow <> 0 limit 1) s
        where r.queue = p_queue and r.priority = p_priority order by r.direct desc);
end $$;
