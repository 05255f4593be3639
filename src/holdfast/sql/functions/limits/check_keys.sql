-- Return the keys of a job's limits without duplicates, in the given order, or null if there are none. Reject invalid
-- keys.
create or replace function check_keys(p_keys text[]) returns text[] language plpgsql immutable as $$
declare
    v_key text;
begin
    if cardinality(p_keys) > 20 then
        raise exception 'a job can have at most 20 limits, got %', cardinality(p_keys) using errcode = 'invalid_parameter_value';
    end if;
    foreach v_key in array p_keys loop
        if v_key is null or length(v_key) not between 1 and 300 then
            raise exception 'the key of a limit must have 1 to 300 characters, got %', coalesce(left(v_key, 60), 'null')
                using errcode = 'invalid_parameter_value';
        end if;
    end loop;
    if cardinality(p_keys) > 1 and cardinality(orders_of(p_keys)) > 1 then
        raise exception 'a job can be in one order only, got %', array_to_string(orders_of(p_keys), ' and ')
            using errcode = 'invalid_parameter_value', hint = 'give one key that begins with "order:"';
    end if;
    return (select array_agg(k.key order by k.place) from (
        select u.key, min(u.place) as place from unnest(p_keys) with ordinality u(key, place) group by u.key) k);
end $$;
