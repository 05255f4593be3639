-- Change the values in force for a key, or with the template of a rule ("domain:{domain}") for all its keys, including
-- future ones: {"concurrency": 4, "rate": null} sets one and resets the other to the code's value. Fields that are not
-- given stay. Fields: concurrency (0: nothing starts), rate, per, burst, breaker_after, breaker_pause, breaker_cap,
-- weight (of tenants). Return the number of keys that may have changed, counted up to 10,001. It applies at once, also
-- to waiting jobs. Recorded in actions.
-- Locks: the rule's row, or the key's limit_settings row.
-- Wakes: all workers.
create or replace function set_limit(p_key text, p_change jsonb, p_by text default null,
    p_reason text default null) returns integer
language plpgsql security definer set search_path from current set jit = off as $$
declare
    v_rule limit_rules; v_by text := coalesce(p_by, session_user); v_before jsonb;
begin
    perform check_limit_key(p_key);
    perform check_limit(p_key, p_change);
    if p_key like 'order:%' and jsonb_strip_nulls(p_change) <> '{}' then
        raise exception 'an order runs one job at a time and has no other limits; % of % cannot be set',
            (select string_agg(n, ', ') from jsonb_object_keys(jsonb_strip_nulls(p_change)) n), p_key
            using errcode = 'invalid_parameter_value', constraint = 'limit';
    end if;
    v_before := coalesce((select r.override from limit_rules r where r.template = p_key and strpos(p_key, '{') > 0),
                         (select s.override from limit_settings s where s.key = p_key), '{}') - 'by' - 'at';
    perform record_action('limits.set', p_key, v_by, p_reason, v_before, p_change);
    update limit_rules r set override = change_override(r.override, r.code, p_change, v_by), updated_at = clock()
    where r.template = p_key and strpos(p_key, '{') > 0;
    if found then
        perform touch_limit(null);
        return (select count(*) from (select 1 from limits m where m.template = p_key limit 10001) k);
    end if;
    select * into v_rule from limit_rules r where r.template = rule_of(p_key);
    insert into limit_settings (key, kind) values (p_key, kind_of(p_key)) on conflict do nothing;
    update limit_settings s set override = change_override(
        s.override, coalesce(v_rule.code, '{}') || coalesce(v_rule.override, '{}') - '{by,at}'::text[], p_change, v_by)
    where s.key = p_key;
    perform touch_limit(p_key);
    return 1;
end $$;
