-- The orders among limits: one job at a time, the first first, and one that waits for another attempt holds up the rest.
-- Called by: claim, settle.
-- Locks: none.
-- Wakes: nobody.
create or replace function orders_of(p_keys text[]) returns text[]
language plpgsql immutable parallel safe
as $$
begin
    return array(select k from unnest(p_keys) k where k like 'order:%');
end $$;
