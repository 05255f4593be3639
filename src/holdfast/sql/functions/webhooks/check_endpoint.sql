-- Reject an endpoint to which nothing could be delivered, with a message that names the value. Addresses are checked
-- when they are dialed.
create or replace function check_endpoint(p_endpoint webhook_endpoints) returns void language plpgsql immutable as $$
declare
    v_odd text;  -- one that is no type of events
    v_problem text;
begin
    select v into v_odd from unnest(p_endpoint.events) v
    where (v ~ '^[!-~]{1,200}$' and strpos(left(v, -1), '*') = 0 and v !~ '(^|[^.])[*]$') is not true limit 1;
    v_problem := case
        when found then format('an endpoint''s events must be types such as order.paid, or prefixes such as order.*; got %s',
                               coalesce(quote_literal(left(v_odd, 60)), 'null'))
        when (length(p_endpoint.url) <= 2000 and p_endpoint.url ~* (
              case when p_endpoint.dev then '^https?://[^/]' else '^https://[^/]' end)) is not true then
            format('an endpoint''s URL must begin with https://, or http:// if the endpoint is for development; got %s',
                   coalesce(quote_literal(left(regexp_replace(split_part(p_endpoint.url, '?', 1), '//[^/]*@', '//'), 60)), 'null'))
        when length(p_endpoint.tenant) not between 1 and 200 then
            format('a tenant must have 1 to 200 characters, got %s', quote_literal(left(p_endpoint.tenant, 60)))
        when (p_endpoint.prefix ~ '^[A-Za-z0-9-]{1,40}$') is not true then
            format('the prefix of an endpoint''s headers must have 1 to 40 letters, digits and hyphens, got %s',
                   coalesce(quote_literal(left(p_endpoint.prefix, 60)), 'null'))
        when (p_endpoint.timeout > 0 and p_endpoint.timeout <= 300) is not true then
            format('an endpoint''s timeout must be above 0 and up to 300 seconds, got %s', coalesce(p_endpoint.timeout::text, 'null'))
        when cardinality(p_endpoint.events) not between 1 and 200 then
            format('an endpoint must have 1 to 200 types of events, or null for all; got %s', cardinality(p_endpoint.events)) end;
    if v_problem is not null then
        raise exception '%', v_problem using errcode = 'invalid_parameter_value', constraint = 'endpoint';
    end if;
end $$;
