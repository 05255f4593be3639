-- Tells every worker something in a word: "limits" when limits or pauses have changed.
-- Called by: register_limits, and what operators change limits with.
-- Locks: none; the notifications are sent when the caller's transaction commits.
-- Wakes: every worker that listens; one that does not finds out with its next poll.
create or replace function tell_workers(p_what text) returns void
language plpgsql security definer
set search_path from current
as $$
begin
    perform pg_notify(current_schema() || '_wake', w.id || ' ' || p_what) from workers w;
end $$;
