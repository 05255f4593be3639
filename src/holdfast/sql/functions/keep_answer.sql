-- Keeps what a request with an Idempotency-Key was answered, for whoever repeats it.
-- Called by: the service, last in the transaction that begin_answer was first in.
-- Locks: the key, held since then.
-- Wakes: nobody.
create or replace function keep_answer(p_owner text, p_key text, p_status smallint, p_body text) returns void
language plpgsql security definer
set search_path from current
as $$
begin
    update answers set status = p_status, body = p_body where owner = p_owner and key = p_key;
end $$;
