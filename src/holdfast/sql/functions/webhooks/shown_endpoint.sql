-- Return what the log of actions shows of an endpoint: all but its secrets, and its URL without the query, which may
-- hold one.
create or replace function shown_endpoint(p_endpoint webhook_endpoints) returns jsonb language sql immutable as $$
    select jsonb_build_object(
        'url', regexp_replace(p_endpoint.url, '[?].*', '?...'), 'tenant', p_endpoint.tenant, 'events', p_endpoint.events,
        'prefix', p_endpoint.prefix, 'timeout', p_endpoint.timeout, 'dev', p_endpoint.dev,
        'description', p_endpoint.description, 'enabled', p_endpoint.enabled)
$$;
