-- Remove what operators have set for a key, or for a rule, given its template; the values in the code apply again.
-- Pauses and breakers stay. Return the number of keys that may have changed: 0 if nothing was set.
-- Locks: the rule's row, or the key's limit_settings row.
-- Wakes: all workers, if something was set.
create or replace function clear_limit(p_key text, p_by text default null, p_reason text default null) returns integer
language plpgsql security definer set search_path from current set jit = off as $$
declare
    v_before jsonb := coalesce((select r.override from limit_rules r where r.template = p_key and strpos(p_key, '{') > 0),
                               (select s.override from limit_settings s where s.key = p_key), '{}') - 'by' - 'at';
begin
    if v_before <> '{}' then perform record_action('limits.clear', p_key, p_by, p_reason, v_before); end if;
    update limit_rules r set override = '{}', updated_at = clock()
    where r.template = p_key and strpos(p_key, '{') > 0 and r.override <> '{}';
    if found then
        perform touch_limit(null);
        return (select greatest(count(*), 1) from (select 1 from limits m where m.template = p_key limit 10001) k);
    end if;
    update limit_settings s set override = '{}' where s.key = p_key and s.override <> '{}';
    if not found then return 0; end if;
    perform touch_limit(p_key);
    return 1;
end $$;
