-- Take the ring's lock until the end of the transaction, which makes the caller its only writer. Return false if it is
-- not free within 0.1 s. Waiting in the lock queue is cheaper than polling: a claim takes a few milliseconds.
-- Locks: the ring's advisory lock.
create or replace function lock_ring() returns boolean
language plpgsql set search_path from current set lock_timeout = '100ms' as $$
declare
    v_ring integer := hashtext('the ring of ' || current_schema());
begin
    if not pg_try_advisory_xact_lock(1215259732, v_ring) then
        begin
            perform pg_advisory_xact_lock(1215259732, v_ring);
        exception when lock_not_available then
            return false;
        end;
    end if;
    -- A caller's transaction that is left open would keep all others from the ring.
    perform set_config('idle_in_transaction_session_timeout', '1s', true);
    return true;
end $$;
