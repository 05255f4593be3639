-- Return the fingerprint of a task's group "other", in which the errors beyond its 200th group are counted.
create or replace function other_errors(p_task text) returns text
language sql immutable parallel safe as $$ select left(encode(sha256(convert_to('other' || chr(31) || p_task, 'UTF8')), 'hex'), 16) $$;
