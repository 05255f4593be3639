-- Return whether a payload has these arguments. False for one that jsonb cannot hold, such as a number with a million
-- digits: it must not stop a search.
create or replace function has_args(p_payload json, p_args jsonb) returns boolean
language plpgsql immutable parallel safe as $$
begin
    return p_payload::jsonb @> p_args;
exception when data_exception or program_limit_exceeded then
    return false;
end $$;
