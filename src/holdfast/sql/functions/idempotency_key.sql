-- The key that a message is known by for ever, unique over channels and tenants: "channel/tenant/key", the tenant's own
-- slashes escaped, nothing where there is no tenant.
-- Called by: take_outbox_key, the views outbox and channel_outbox.
-- Locks: none.
-- Wakes: nobody.
create or replace function idempotency_key(p_channel text, p_tenant text, p_key text) returns text
language sql immutable parallel safe
return p_channel || '/' || coalesce(replace(replace(p_tenant, '%', '%25'), '/', '%2F'), '') || '/' || p_key;
