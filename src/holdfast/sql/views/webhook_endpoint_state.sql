-- Endpoints without their secrets: how many secrets are valid, until when the previous ones are, and the endpoint's
-- health from its limit.
create or replace view webhook_endpoint_state as
select e.id, e.tenant, e.url, e.events, e.prefix, e.timeout, e.dev, e.enabled, e.disabled_reason, e.description,
       e.created_at, e.updated_at,
       (select count(*)::integer from jsonb_array_elements(e.secrets) s
        where coalesce((s ->> 'until')::timestamptz > clock(), true)) as secrets,
       (select max((s ->> 'until')::timestamptz) from jsonb_array_elements(e.secrets) s
        where (s ->> 'until')::timestamptz > clock()) as old_secrets_until,
       coalesce(m.failure_streak, 0) as failure_streak, m.last_success_at, m.last_failure_at,
       case when m.open_until > clock() then m.open_until end as breaker_open_until
from webhook_endpoints e
left join lateral (select * from limit_use u where u.key = 'webhook:' || e.id offset 0) m on true;  -- offset: one by one, not all limits
