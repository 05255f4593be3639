-- Store the response to a request with an Idempotency-Key, for repeated requests. It is the last call of the
-- transaction that began with begin_response.
-- Locks: the key, held since begin_response.
create or replace function store_response(p_owner text, p_key text, p_status smallint, p_body text) returns void
language plpgsql security definer set search_path from current as $$
begin
    update responses set status = p_status, body = p_body where owner = p_owner and key = p_key;
end $$;
