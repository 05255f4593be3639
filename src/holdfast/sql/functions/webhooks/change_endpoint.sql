-- Change an endpoint: {"url": ..., "events": [...], "prefix": ..., "timeout": ..., "dev": ..., "description": ...,
-- "enabled": true}. Fields that are not given stay, and null for events means all. Waiting deliveries use the values in
-- force when they are sent. Enabling also resets the breaker. Return whether the endpoint exists.
-- Locks: the endpoint's row, then its limit. Wakes: all workers, if its breaker had to be closed.
create or replace function change_endpoint(p_id uuid, p_change jsonb, p_by text default null,
    p_reason text default null, p_view_tenant text default null) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_odd text := (select min(k) from jsonb_object_keys(p_change) k
                   where k <> all ('{url,events,prefix,timeout,dev,description,enabled}'::text[]));
    v_old webhook_endpoints; v_new webhook_endpoints; v_before jsonb; v_after jsonb;
begin
    if v_odd is not null or p_change -> 'enabled' <> 'true' then
        raise exception 'an endpoint''s url, events, prefix, timeout, dev and description may be changed, and enabled to true, not %',
            coalesce(v_odd, 'enabled to ' || (p_change ->> 'enabled'))
            using errcode = 'invalid_parameter_value', constraint = 'endpoint';
    end if;
    select * into v_old from webhook_endpoints e where e.id = p_id for update;
    if not found then return false; end if;
    select * into v_new from jsonb_populate_record(v_old, p_change);
    v_new.dev := coalesce(v_new.dev, false);
    perform check_endpoint(v_new);
    update webhook_endpoints e
    set url = v_new.url, events = v_new.events, prefix = v_new.prefix, timeout = v_new.timeout, dev = v_new.dev,
        description = v_new.description, enabled = v_new.enabled,
        disabled_reason = case when not v_new.enabled then e.disabled_reason end, updated_at = clock()
    where e.id = p_id;
    if p_change ? 'enabled' then perform reset_breaker('webhook:' || p_id, p_by, p_reason); end if;
    select jsonb_object_agg(o.key, o.value), jsonb_object_agg(o.key, n.value) into v_before, v_after
    from jsonb_each(shown_endpoint(v_old)) o join jsonb_each(shown_endpoint(v_new)) n on n.key = o.key
    where o.value <> n.value or v_old.url <> v_new.url and o.key = 'url';
    if v_before is not null then
        perform record_action(case when v_before = '{"enabled": false}' then 'webhooks.enable' else 'webhooks.change' end,
                              p_id::text, p_by, p_reason, v_before, v_after, p_view_tenant);
    end if;
    return true;
end $$;
