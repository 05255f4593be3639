-- The template of the rule that a key falls under: the longest pattern that fits; null where there is none.
-- Called by: fold_releases, claim_ring, the view limit_state.
-- Locks: none.
-- Wakes: nobody.
create or replace function rule_of(p_key text) returns text
language plpgsql stable
set search_path from current
as $$
begin
    return (select r.template from limit_rules r where p_key like r.pattern order by length(r.pattern) desc, r.template limit 1);
end $$;
