-- Takes an Idempotency-Key for a request. outcome is new (go on, in this transaction, and end with keep_answer), same (this
-- very request was answered before: status and body) or other (another request had the key).
-- Called by: the service, first in a transaction. A rollback gives the key back.
-- Locks: the key; whoever comes with the same waits until the first has ended.
-- Wakes: nobody.
create or replace function begin_answer(
    p_owner text, p_key text, p_fingerprint bytea, out outcome text, out status smallint, out body text)
language plpgsql security definer
set search_path from current
as $$
#variable_conflict use_column
declare
    v_known answers;
begin
    loop
        insert into answers (owner, key, fingerprint, created_at) values (p_owner, p_key, p_fingerprint, clock())
        on conflict do nothing;
        if found then
            outcome := 'new';
            return;
        end if;
        select a.* into v_known from answers a where a.owner = p_owner and a.key = p_key;
        exit when found;  -- else it was pruned this moment
    end loop;
    outcome := case when v_known.fingerprint = p_fingerprint then 'same' else 'other' end;
    if outcome = 'same' then
        status := v_known.status;
        body := v_known.body;
    end if;
end $$;
