-- Lets nothing more be delivered to an endpoint until it is enabled; deliveries that wait fail when their turn comes. With
-- p_url only if that is still its URL: who was told that an address is gone must not shut the next one. Answers whether
-- it was enabled.
-- Called by: operators; workers, when the endpoint answers 410.
-- Locks: the endpoint's row.
-- Wakes: nobody.
create or replace function disable_endpoint(p_id uuid, p_reason text default null, p_url text default null) returns boolean
language plpgsql security definer
set search_path from current
as $$
begin
    update webhook_endpoints e set enabled = false, disabled_reason = left(p_reason, 500), updated_at = clock()
    where e.id = p_id and e.enabled and (p_url is null or e.url = p_url);
    return found;
end $$;
