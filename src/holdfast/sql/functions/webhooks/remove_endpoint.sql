-- Remove an endpoint with its secrets. Waiting deliveries fail when they are due; ended ones stay as long as history
-- does. Return whether the endpoint existed.
-- Locks: the endpoint's row.
create or replace function remove_endpoint(p_id uuid, p_by text default null, p_reason text default null,
    p_view_tenant text default null) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_old webhook_endpoints;
begin
    delete from webhook_endpoints e where e.id = p_id returning * into v_old;
    if not found then return false; end if;
    perform record_action('webhooks.remove', p_id::text, p_by, p_reason, shown_endpoint(v_old), p_tenant => p_view_tenant);
    return true;
end $$;
