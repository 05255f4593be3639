-- Return the fingerprint of an error that came without one (workers make better ones: model/failure.py): of the task,
-- the type, and the code or, without a code, the message with # for quoted text and words with digits.
create or replace function fingerprint_of(p_task text, p_error jsonb) returns text
language sql immutable parallel safe as $$
    select left(encode(sha256(convert_to(concat_ws(chr(31), p_task, p_error ->> 'type', coalesce(
        nullif(p_error ->> 'code', ''),
        regexp_replace(left(p_error ->> 'message', 500), '"[^"]*"|''[^'']*''|[[:alnum:]_.:/+-]*[0-9][[:alnum:]_.:/+-]*', '#', 'g')
    )), 'UTF8')), 'hex'), 16)
$$;
