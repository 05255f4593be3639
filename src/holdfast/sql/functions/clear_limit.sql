-- Takes back what operators have set for a key, or with a rule's template for the rule: the code's word holds again. Pauses
-- and breakers stay as they are. Answers for how many keys something may have changed: 0 when nothing was set.
-- Called by: operators.
-- Locks: the rule's row; limits rows in key order.
-- Wakes: all workers, if something was set.
create or replace function clear_limit(p_key text) returns integer
language plpgsql security definer
set search_path from current set jit = off
as $$
declare
    v_keys text[] := '{}';
begin
    update limit_rules r set override = '{}', updated_at = clock()
    where r.template = p_key and strpos(p_key, '{') > 0 and r.override <> '{}';
    if found then
        v_keys := array(select m.key from limits m where m.template = p_key);
    else
        update limits m set override = '{}' where m.key = p_key and m.override <> '{}';
        if not found then
            return 0;
        end if;
        v_keys := array[p_key];
    end if;
    perform apply_limits(v_keys);
    perform forget_limit(p_key);
    perform tell_workers('limits');
    return greatest(cardinality(v_keys), 1);
end $$;
