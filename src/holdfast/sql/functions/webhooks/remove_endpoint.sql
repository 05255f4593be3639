-- Removes an endpoint with its secrets. Waiting deliveries fail when they are due; ended ones stay as long as history
-- does. Returns whether the endpoint existed.
-- Locks: the endpoint's row.
create or replace function remove_endpoint(p_id uuid) returns boolean
language plpgsql security definer set search_path from current as $$
begin
    delete from webhook_endpoints e where e.id = p_id;
    return found;
end $$;
