-- Changes an endpoint: {"url": ..., "events": [...], "prefix": ..., "timeout": ..., "dev": ..., "description": ...}.
-- Fields that are not given stay, and null for events means all. Waiting deliveries use the values in force when they
-- are sent. Returns whether the endpoint exists.
-- Locks: the endpoint's row.
create or replace function change_endpoint(p_id uuid, p_change jsonb) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_odd text := (select min(k) from jsonb_object_keys(p_change) k
                   where k <> all ('{url,events,prefix,timeout,dev,description}'::text[]));
    v_new webhook_endpoints;
begin
    if v_odd is not null then
        raise exception 'an endpoint''s url, events, prefix, timeout, dev and description may be changed, not %', v_odd
            using errcode = 'invalid_parameter_value', constraint = 'endpoint';
    end if;
    select * into v_new from webhook_endpoints e where e.id = p_id for update;
    if not found then return false; end if;
    select * into v_new from jsonb_populate_record(v_new, p_change);
    v_new.dev := coalesce(v_new.dev, false);
    perform check_endpoint(v_new);
    update webhook_endpoints e
    set url = v_new.url, events = v_new.events, prefix = v_new.prefix, timeout = v_new.timeout, dev = v_new.dev,
        description = v_new.description, updated_at = clock()
    where e.id = p_id;
    return true;
end $$;
