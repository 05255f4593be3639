-- Take a message's key for p_id, or return its holder: the first message of this channel and tenant with this key,
-- whatever its status. The end of a job does not release the key: it is kept for outbox_keys_days and while the message
-- exists. A repeatable read transaction that cannot see the holder fails with 40001 and is to be repeated.
-- Locks: as take_dedupe_key.
create or replace function take_outbox_key(p_channel text, p_tenant text, p_key text, p_id uuid, out holder uuid,
    out taken boolean)
language plpgsql set search_path from current as $$
declare
    v_key text := 'outbox' || chr(31) || idempotency_key(p_channel, p_tenant, p_key);
    v_until timestamptz := clock() + make_interval(days => (select s.value::integer from settings s where s.name = 'outbox_keys_days'));
begin
    if (p_channel ~ '^[A-Za-z0-9_.-]{1,100}$') is not true then
        raise exception 'a channel''s name must have 1 to 100 letters, digits, dots, dashes and underscores, got %',
            coalesce(quote_literal(left(p_channel, 60)), 'null') using errcode = 'invalid_parameter_value';
    elsif (length(p_key) between 1 and 300) is not true then
        raise exception 'the key of a message must have 1 to 300 characters; it names what must not be sent twice; got %',
            coalesce(quote_literal(left(p_key, 60)), 'null') using errcode = 'invalid_parameter_value';
    elsif p_key ~ E'[\x01-\x1f\x7f]' then  -- it is sent in a header
        raise exception 'the key of a message must not contain control characters, got %', quote_literal(left(p_key, 60))
            using errcode = 'invalid_parameter_value';
    end if;
    select k.holder, k.taken into holder, taken from take_dedupe_key(v_key, p_id, 'success', null, v_until) k;
end $$;
