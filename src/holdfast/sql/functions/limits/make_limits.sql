-- Create rows for keys that have none, each with the rule that applies to it now. The caller holds the ring's lock.
create or replace function make_limits(p_keys text[]) returns void language plpgsql set search_path from current as $$
begin
    insert into limits (key, kind, template, version)
    select k.key, kind_of(k.key), rule_of(k.key), (select coalesce(max(r.version), 0) from limit_rules r) from (select distinct unnest(p_keys) as key) k
    where not exists (select 1 from limits m where m.key = k.key) on conflict do nothing;
end $$;
