-- Return the key of a signal's advisory lock. Signals with equal keys share a lock, which only makes them wait longer.
create or replace function signal_key(p_tenant text, p_name text) returns integer
language sql stable as $$
    select hashtext(current_schema() || chr(31) || p_tenant || chr(31) || p_name)
$$;
