-- The outbox with the column names that dashboards of other systems expect. idempotency_key is unique.
create view channel_outbox as
select id, tenant as tenant_id, channel, idempotency_key, status, attempts, payload, error ->> 'message' as error_message,
       created_at, delivered_at as sent_at
from outbox;
