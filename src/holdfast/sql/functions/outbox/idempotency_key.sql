-- Return the permanent key of a message, unique over channels and tenants: "channel/tenant/key". Slashes in the tenant
-- are escaped, and the tenant is empty if there is none.
create or replace function idempotency_key(p_channel text, p_tenant text, p_key text) returns text
language sql immutable parallel safe
return p_channel || '/' || coalesce(replace(replace(p_tenant, '%', '%25'), '/', '%2F'), '') || '/' || p_key;
