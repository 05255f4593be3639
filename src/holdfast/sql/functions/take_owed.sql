-- Takes into account what ended jobs owe to the given limits.
-- Called by: admit, claim_known, release_limits, prune_limits, which hold the rows.
-- Locks: limit_owed rows of those keys.
-- Wakes: nobody.
create or replace function take_owed(p_keys text[]) returns void
language plpgsql
set search_path from current
as $$
declare
    v_owed limit_owed[];
begin
    for v_owed in  -- one for each key at a time, in the order in which they ended
        with gone as (delete from limit_owed where key = any (p_keys) returning *)
        select array_agg(g.owed) from (
            select (g.id, g.key, g.ids, g.well, g.ill)::limit_owed as owed, row_number() over (partition by g.key order by g.id) as turn
            from gone g) g
        group by g.turn order by g.turn
    loop
        perform count_ended(v_owed);
    end loop;
end $$;
