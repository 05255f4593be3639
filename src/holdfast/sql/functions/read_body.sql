-- What a delivery sends: the body of its event. Null when it is not kept any more, or is another tenant's.
-- Called by: workers, before they send.
-- Locks: none.
-- Wakes: nobody.
create or replace function read_body(p_id uuid, p_tenant text) returns text
language sql stable security definer
set search_path from current
as $$
    select b.body from webhook_bodies b where b.id = p_id and b.tenant is not distinct from p_tenant
$$;
