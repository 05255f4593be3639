-- What a delivery needs to know of its endpoint: where to, for how long, and the secrets that are valid now, the newest
-- first, as they are stored. The only way to read secrets that any role has.
-- Called by: workers, before they send.
-- Locks: none.
-- Wakes: nobody.
create or replace function read_endpoint(
    p_id uuid, out tenant text, out url text, out prefix text, out timeout double precision, out dev boolean,
    out enabled boolean, out disabled_reason text, out secrets text[])
returns setof record
language sql stable security definer
set search_path from current
as $$
    select e.tenant, e.url, e.prefix, e.timeout, e.dev, e.enabled, e.disabled_reason, array(
        select o.each ->> 'secret' from jsonb_array_elements(e.secrets) with ordinality as o(each, place)
        where coalesce((o.each ->> 'until')::timestamptz > clock(), true) order by o.place)
    from webhook_endpoints e where e.id = p_id
$$;
