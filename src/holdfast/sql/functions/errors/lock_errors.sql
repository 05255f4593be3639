-- Take the lock of error groups until the end of the transaction, which makes the caller their only writer. Return
-- false if another transaction has it.
-- Locks: the advisory lock of error groups, without waiting.
create or replace function lock_errors() returns boolean
language plpgsql set search_path from current as $$
begin
    if not pg_try_advisory_xact_lock(1215259733, hashtext('the error groups of ' || current_schema())) then return false; end if;
    perform set_config('idle_in_transaction_session_timeout', '10ms', true);  -- an open transaction must not keep it
    return true;
end $$;
