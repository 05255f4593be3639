-- Return a job's error on one line: the last part of its type, and its message.
create or replace function error_in_words(p_error jsonb) returns text language sql immutable parallel safe as $$
    select left(regexp_replace(concat_ws(': ', substring(p_error ->> 'type' from '[^.]*$'), nullif(p_error ->> 'message', '')),
                               '[[:space:]]+', ' ', 'g'), 200)
$$;
