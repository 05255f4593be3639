-- Store the digest of a new token; the client has generated the token and shows it once. Without a tenant it is valid
-- for all tenants; without p_lifetime it does not expire. p_priority is the highest priority its jobs may have, p_rate
-- the number of requests per second that each service process accepts. Return whether it was created: a repeated call
-- with the same id changes nothing.
-- Locks: the token's row.
create or replace function create_token(p_id uuid, p_name text, p_digest bytea, p_shown text, p_tenant text,
    p_scopes text[], p_lifetime interval default null, p_priority integer default 0,
    p_rate double precision default null, p_by text default null, p_reason text default null) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_scope text;
begin
    if p_lifetime <= interval '0' then
        raise exception 'the lifetime of a token must be longer than 0, got %', p_lifetime
            using errcode = 'invalid_parameter_value', constraint = 'token';
    elsif (p_priority between 0 and 3) is not true then
        raise exception 'priority must be 0 (critical), 1 (high), 2 (normal) or 3 (low), got %', coalesce(p_priority::text, 'null')
            using errcode = 'invalid_parameter_value', constraint = 'token';
    elsif (p_rate > 0 and p_rate < 'infinity') is false then
        raise exception 'rate is in requests per second and must be above 0, got %', p_rate
            using errcode = 'invalid_parameter_value', constraint = 'token';
    elsif coalesce(cardinality(p_scopes), 0) = 0 then
        raise exception 'a token needs at least one scope' using errcode = 'invalid_parameter_value', constraint = 'token';
    end if;
    foreach v_scope in array p_scopes loop
        if (v_scope = any (array['jobs:read', 'jobs:write', 'webhooks:read', 'webhooks:write', 'metrics', 'operate', 'admin'])) is not true then
            raise exception 'a scope must be jobs:read, jobs:write, webhooks:read, webhooks:write, metrics, operate or admin; got %',
                coalesce(quote_literal(left(v_scope, 60)), 'null')
                using errcode = 'invalid_parameter_value', constraint = 'token';
        elsif p_tenant is not null and v_scope in ('metrics', 'operate', 'admin') then
            raise exception 'the scope % covers all tenants; a token of tenant % cannot have it', v_scope, quote_literal(left(p_tenant, 60))
                using errcode = 'invalid_parameter_value', constraint = 'token';
        end if;
    end loop;
    insert into api_tokens (id, name, digest, shown, tenant, scopes, created_at, expires_at, priority, rate)
    values (p_id, p_name, p_digest, p_shown, p_tenant, p_scopes, clock(), clock() + p_lifetime, p_priority, p_rate)
    on conflict (id) do nothing;
    if not found then return false; end if;
    perform record_action('tokens.create', p_id::text, p_by, p_reason, null, jsonb_build_object(
        'name', p_name, 'tenant', p_tenant, 'scopes', p_scopes, 'priority', p_priority, 'rate', p_rate, 'expires_at', clock() + p_lifetime));
    return true;
end $$;
