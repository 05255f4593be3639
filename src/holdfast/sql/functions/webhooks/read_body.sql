-- Return the body that a delivery sends. Null if it is no longer kept, or belongs to another tenant.
create or replace function read_body(p_id uuid, p_tenant text) returns text
language sql stable security definer set search_path from current as $$
    select b.body from webhook_bodies b where b.id = p_id and b.tenant is not distinct from p_tenant
$$;
