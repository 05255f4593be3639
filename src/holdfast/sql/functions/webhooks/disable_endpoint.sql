-- Stop deliveries to an endpoint until it is enabled; waiting deliveries fail when they are due. Workers call it when
-- the endpoint responds with 410. With p_url it applies only if that is still the endpoint's URL: a 410 from an old
-- address must not disable the new one. Recorded in actions unless a worker calls it. Return whether the endpoint was
-- enabled.
-- Locks: the endpoint's row.
create or replace function disable_endpoint(p_id uuid, p_reason text default null, p_url text default null,
    p_by text default null, p_view_tenant text default null) returns boolean
language plpgsql security definer set search_path from current as $$
begin
    update webhook_endpoints e set enabled = false, disabled_reason = left(p_reason, 500), updated_at = clock()
    where e.id = p_id and e.enabled and (p_url is null or e.url = p_url);
    if not found then return false; end if;
    if p_url is null then
        perform record_action('webhooks.disable', p_id::text, p_by, p_reason, '{"enabled": true}', '{"enabled": false}', p_view_tenant);
    end if;
    return true;
end $$;
