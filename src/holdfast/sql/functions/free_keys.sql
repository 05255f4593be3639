-- Those of a job's limits that it does not hold already, in their order.
-- Called by: settle, resolve_duplicate.
-- Locks: none.
-- Wakes: nobody.
create or replace function free_keys(p_keys text[], p_held text[]) returns text[]
language plpgsql immutable parallel safe
as $$
begin
    return array(select k from unnest(p_keys) with ordinality as u(k, n) where k <> all (coalesce(p_held, '{}')) order by n);
end $$;
