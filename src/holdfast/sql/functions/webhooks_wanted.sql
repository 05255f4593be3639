-- Whether there is an endpoint that may be told of events, or a delivery that waits.
-- Called by: workers that cannot deliver webhooks, when they start, to say so where it matters.
-- Locks: none.
-- Wakes: nobody.
create or replace function webhooks_wanted() returns boolean
language plpgsql stable security definer
set search_path from current set jit = off
as $$
begin
    return exists (select 1 from webhook_endpoints e where e.enabled)
        or exists (select 1 from live l where l.queue = 'webhooks');
end $$;
