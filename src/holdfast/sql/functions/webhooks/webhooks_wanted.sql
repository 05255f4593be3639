-- Return whether there is an enabled endpoint or a waiting delivery. Workers that cannot deliver webhooks then log a
-- warning when they start.
create or replace function webhooks_wanted() returns boolean
language plpgsql stable security definer set search_path from current set jit = off as $$
begin
    return exists (select 1 from webhook_endpoints e where e.enabled)
        or exists (select 1 from live l where l.queue = 'webhooks');
end $$;
