-- Makes an endpoint, which is told of its tenant's events from now on; without a tenant, of events that have none. Answers
-- whether it did: a repeated call with the same id changes nothing.
-- Called by: operators. p_secret is stored as it comes: sealed by the client if it has a key.
-- Locks: the endpoint's row.
-- Wakes: nobody.
create or replace function add_endpoint(
    p_id          uuid,
    p_url         text,
    p_secret      text,
    p_tenant      text default null,
    p_events      text[] default null,
    p_prefix      text default 'Holdfast',
    p_timeout     double precision default 30,
    p_dev         boolean default false,
    p_description text default null
) returns boolean
language plpgsql security definer
set search_path from current
as $$
declare
    v_new webhook_endpoints;
begin
    v_new.tenant := p_tenant;
    v_new.url := p_url;
    v_new.events := p_events;
    v_new.prefix := p_prefix;
    v_new.timeout := p_timeout;
    v_new.dev := coalesce(p_dev, false);
    perform check_endpoint(v_new);
    if p_id is null or coalesce(p_secret, '') = '' then
        raise exception 'an endpoint needs an id and a secret' using errcode = 'invalid_parameter_value', constraint = 'endpoint';
    end if;
    insert into webhook_endpoints (id, tenant, url, events, prefix, timeout, dev, description, secrets, created_at, updated_at)
    values (p_id, p_tenant, p_url, p_events, p_prefix, p_timeout, v_new.dev, p_description,
            jsonb_build_array(jsonb_build_object('secret', p_secret, 'since', clock(), 'until', null)), clock(), clock())
    on conflict do nothing;
    return found;
end $$;
