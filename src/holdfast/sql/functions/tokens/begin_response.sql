-- Take an Idempotency-Key for a request, as the first call of a transaction. outcome is new (execute the request in
-- this transaction and end with store_response), same (this request has a stored response: status and body) or other
-- (the key was used for a different request). A rollback releases the key.
-- Locks: the key; requests with the same key wait until this transaction has ended.
create or replace function begin_response(p_owner text, p_key text, p_fingerprint bytea, out outcome text,
    out status smallint, out body text)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
    v_known responses;
begin
    loop
        insert into responses (owner, key, fingerprint, created_at) values (p_owner, p_key, p_fingerprint, clock())
        on conflict do nothing;
        if found then
            outcome := 'new';
            return;
        end if;
        select a.* into v_known from responses a where a.owner = p_owner and a.key = p_key;
        exit when found;  -- else it has just been pruned
    end loop;
    outcome := case when v_known.fingerprint = p_fingerprint then 'same' else 'other' end;
    if outcome = 'same' then
        status := v_known.status;
        body := v_known.body;
    end if;
end $$;
