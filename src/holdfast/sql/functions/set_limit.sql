-- Changes what is in force for a key, or with the template of a rule ("domain:{domain}") for all keys of it, those to come
-- too: {"concurrency": 4, "rate": null} sets the one and gives the other back to the code. What is not named stays.
-- Names: concurrency (0: nothing starts), rate, per, burst, breaker_after, breaker_pause, breaker_cap, weight (of tenants).
-- Answers for how many keys something may have changed; it acts at once on what waits.
-- Called by: operators.
-- Locks: the rule's row; limits rows in key order. Of a key without a row first the lock that claims try before they make one: while
--   this transaction is open they step over jobs under it, and under one in 64 of other keys without a row.
-- Wakes: all workers.
create or replace function set_limit(p_key text, p_change jsonb, p_by text default null) returns integer
language plpgsql security definer
set search_path from current set jit = off
as $$
declare
    v_rule limit_rules;
    v_keys text[];
    v_by   text := coalesce(p_by, session_user);
begin
    perform check_limit_key(p_key);
    perform check_limit(p_key, p_change);
    if p_key like 'order:%' and jsonb_strip_nulls(p_change) <> '{}' then
        raise exception 'an order runs one job at a time and has no other limits; % of % cannot be set',
            (select string_agg(n, ', ') from jsonb_object_keys(jsonb_strip_nulls(p_change)) n), p_key
            using errcode = 'invalid_parameter_value', constraint = 'limit';
    end if;
    update limit_rules r set override = change_override(r.override, r.code, p_change, v_by), updated_at = clock()
    where r.template = p_key and strpos(p_key, '{') > 0;
    if found then
        v_keys := array(select m.key from limits m where m.template = p_key);
    else
        loop
            perform 1 from limits m where m.key = p_key for update;
            exit when found;
            -- As a claim does: one that meets the key steps over it, and does not wait for this transaction.
            perform pg_advisory_xact_lock(hashtext('limits of ' || current_schema()), hashtext(p_key) & 63);
            perform apply_limits(array[p_key]);  -- and once more: prune may remove a row that nobody uses
        end loop;
        select * into v_rule from limit_rules r where p_key like r.pattern
        order by length(r.pattern) desc, r.template limit 1;
        update limits m set override = change_override(
            m.override, coalesce(v_rule.code, '{}') || coalesce(v_rule.override, '{}') - '{by,at}'::text[], p_change, v_by)
        where m.key = p_key;
        v_keys := array[p_key];
    end if;
    perform apply_limits(v_keys);
    perform tell_workers('limits');
    return cardinality(v_keys);
end $$;
