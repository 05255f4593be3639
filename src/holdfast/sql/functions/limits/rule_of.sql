-- Return the template of the rule that applies to a key: the longest pattern that matches; null if none does.
create or replace function rule_of(p_key text) returns text language plpgsql stable set search_path from current as $$
begin
    return (select r.template from limit_rules r where p_key like r.pattern order by length(r.pattern) desc, r.template limit 1);
end $$;
