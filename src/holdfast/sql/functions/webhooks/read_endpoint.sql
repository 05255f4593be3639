-- Return what a delivery needs from its endpoint: URL, timeout, and the currently valid secrets, newest first, as
-- stored. No role can read secrets in another way.
create or replace function read_endpoint(p_id uuid, out tenant text, out url text, out prefix text,
    out timeout double precision, out dev boolean, out enabled boolean, out disabled_reason text, out secrets text[])
    returns setof record
language sql stable security definer set search_path from current as $$
    select e.tenant, e.url, e.prefix, e.timeout, e.dev, e.enabled, e.disabled_reason, array(
        select o.each ->> 'secret' from jsonb_array_elements(e.secrets) with ordinality as o(each, place)
        where coalesce((o.each ->> 'until')::timestamptz > clock(), true) order by o.place)
    from webhook_endpoints e where e.id = p_id
$$;
