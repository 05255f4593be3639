-- Stop an action; what it has changed stays changed. Return whether it was running. p_tenant: the tenant that the
-- caller may see; null: all.
-- Locks: the action's row, which a step holds for a moment.
create or replace function abort_action(p_id uuid, p_by text default null, p_reason text default null, p_tenant text default null)
    returns boolean
language plpgsql security definer set search_path from current as $$
begin
    update actions a set state = 'aborted', finished_at = clock()
    where a.id = p_id and a.state = 'running' and (p_tenant is null or a.view_tenant = p_tenant);
    if not found then return false; end if;
    perform record_action('abort', p_id::text, p_by, p_reason, p_tenant => p_tenant);
    return true;
end $$;
