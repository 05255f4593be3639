-- Rejects an endpoint to which nothing could be delivered, with a message that names the value. Addresses are checked
-- when they are dialed.
create or replace function check_endpoint(p_endpoint webhook_endpoints) returns void language plpgsql immutable as $$
declare
    v_event text;
begin
    if p_endpoint.url is null or length(p_endpoint.url) > 2000
       or p_endpoint.url !~* (case when p_endpoint.dev then '^https?://[^/]' else '^https://[^/]' end) then
        raise exception 'an endpoint''s URL begins with https://, or with http:// too if it is for development; got %',
            coalesce(quote_literal(left(regexp_replace(split_part(p_endpoint.url, '?', 1), '//[^/]*@', '//'), 60)), 'null')
            using errcode = 'invalid_parameter_value', constraint = 'endpoint';
    elsif length(p_endpoint.tenant) not between 1 and 200 then
        raise exception 'a tenant has 1 to 200 characters, got %', quote_literal(left(p_endpoint.tenant, 60))
            using errcode = 'invalid_parameter_value', constraint = 'endpoint';
    elsif (p_endpoint.prefix ~ '^[A-Za-z0-9-]{1,40}$') is not true then
        raise exception 'the prefix of an endpoint''s headers has 1 to 40 letters, digits and hyphens, got %',
            coalesce(quote_literal(left(p_endpoint.prefix, 60)), 'null')
            using errcode = 'invalid_parameter_value', constraint = 'endpoint';
    elsif (p_endpoint.timeout > 0 and p_endpoint.timeout <= 300) is not true then
        raise exception 'an endpoint''s timeout is more than 0 and up to 300 seconds, got %', coalesce(p_endpoint.timeout::text, 'null')
            using errcode = 'invalid_parameter_value', constraint = 'endpoint';
    elsif cardinality(p_endpoint.events) not between 1 and 200 then
        raise exception 'an endpoint has 1 to 200 types of events, or null for all; got %', cardinality(p_endpoint.events)
            using errcode = 'invalid_parameter_value', constraint = 'endpoint';
    end if;
    foreach v_event in array coalesce(p_endpoint.events, '{}') loop
        if (v_event ~ '^[!-~]{1,200}$' and strpos(left(v_event, -1), '*') = 0 and v_event !~ '(^|[^.])[*]$') is not true then
            raise exception 'an endpoint''s events are types such as order.paid, or prefixes such as order.*; got %',
                coalesce(quote_literal(left(v_event, 60)), 'null')
                using errcode = 'invalid_parameter_value', constraint = 'endpoint';
        end if;
    end loop;
end $$;
