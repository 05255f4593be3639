-- Sends a notification with the given word to every worker: "limits" when limits or pauses have changed. It is sent when the
-- caller's transaction commits.
-- Wakes: every worker that listens; others see the change with their next poll.
create or replace function tell_workers(p_what text) returns void
language plpgsql security definer
set search_path from current
as $$
begin
    perform pg_notify(current_schema() || '_wake', w.id || ' ' || p_what) from workers w;
end $$;
