-- Enables deliveries to an endpoint and resets its breaker. Returns whether the endpoint exists.
-- Locks: the endpoint's row, then its limit.
-- Wakes: all workers, if its breaker had to be closed.
create or replace function enable_endpoint(p_id uuid) returns boolean
language plpgsql security definer set search_path from current as $$
begin
    update webhook_endpoints e set enabled = true, disabled_reason = null, updated_at = clock() where e.id = p_id;
    if not found then return false; end if;
    perform reset_breaker('webhook:' || p_id);
    return true;
end $$;
