-- Return the limits of a delivery: its endpoint's, and the one shared by its tenant's endpoints at the same host. For
-- an endpoint that was removed, only the first.
create or replace function delivery_keys(p_endpoint uuid) returns text[]
language sql stable set search_path from current as $$
    select array_remove(array['webhook:' || p_endpoint, (
        select case when length(k.key) <= 300 then k.key else left(k.key, 268) || md5(k.key) end
        from webhook_endpoints e cross join lateral (
            select 'webhook-host:' || substring(lower(e.url) from '^https?://([[][^]]*[]]|[^/:?#]+)') || coalesce('/' || e.tenant, '') as key) k
        where e.id = p_endpoint)], null)
$$;
