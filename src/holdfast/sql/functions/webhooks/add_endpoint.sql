-- Create an endpoint. It receives the events of its tenant from now on; without a tenant, events that have none.
-- Return whether it was created: a repeated call with the same id changes nothing. A tenant has at most
-- webhook_endpoints_per_tenant endpoints (table settings), because each event is sent to all of them. p_secret is
-- stored unchanged: the client seals it if it has a key. Recorded in actions, as every change of an endpoint is.
-- Locks: other calls for the same tenant wait until the transaction ends; the endpoint's row.
create or replace function add_endpoint(p_id uuid, p_url text, p_secret text, p_tenant text default null,
    p_events text[] default null, p_prefix text default 'Holdfast', p_timeout double precision default 30,
    p_dev boolean default false, p_description text default null, p_by text default null, p_reason text default null,
    p_view_tenant text default null) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_new webhook_endpoints;
    v_most integer := (select s.value::integer from settings s where s.name = 'webhook_endpoints_per_tenant');
begin
    select p_url, p_events, p_prefix, p_timeout, coalesce(p_dev, false)
    into v_new.url, v_new.events, v_new.prefix, v_new.timeout, v_new.dev;
    v_new.tenant := p_tenant;
    perform check_endpoint(v_new);
    if p_id is null or coalesce(p_secret, '') = '' then
        raise exception 'an endpoint needs an id and a secret' using errcode = 'invalid_parameter_value', constraint = 'endpoint';
    end if;
    if p_tenant is not null then
        perform pg_advisory_xact_lock(hashtextextended('holdfast webhook_endpoints ' || p_tenant, 0));
        if (select count(*) from webhook_endpoints e where e.tenant = p_tenant) >= v_most
           and not exists (select 1 from webhook_endpoints e where e.id = p_id) then
            raise exception 'tenant % has % endpoints, the maximum; remove one first',
                quote_literal(left(p_tenant, 60)), v_most
                using errcode = 'invalid_parameter_value', constraint = 'endpoint',
                      hint = 'an operator may raise webhook_endpoints_per_tenant in the table settings';
        end if;
    end if;
    insert into webhook_endpoints (id, tenant, url, events, prefix, timeout, dev, description, secrets, created_at, updated_at)
    values (p_id, p_tenant, p_url, p_events, p_prefix, p_timeout, v_new.dev, p_description,
            jsonb_build_array(jsonb_build_object('secret', p_secret, 'since', clock(), 'until', null)), clock(), clock())
    on conflict do nothing
    returning * into v_new;
    if not found then return false; end if;
    perform record_action('webhooks.add', p_id::text, p_by, p_reason, null, shown_endpoint(v_new), p_view_tenant);
    return true;
end $$;
