-- Removes an endpoint with its secrets. Deliveries that wait fail when their turn comes; those that ended stay as long as
-- history does. Answers whether there was such an endpoint.
-- Called by: operators.
-- Locks: the endpoint's row.
-- Wakes: nobody.
create or replace function remove_endpoint(p_id uuid) returns boolean
language plpgsql security definer
set search_path from current
as $$
begin
    delete from webhook_endpoints e where e.id = p_id;
    return found;
end $$;
