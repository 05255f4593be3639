-- Webhook deliveries, which are jobs, with the column names of webhooks. The receiver's response is in the result, or
-- in the error of the last attempt. endpoint_key is the endpoint in the form the indexes use: search by it.
create or replace view webhook_deliveries as
select j.id as webhook_delivery_id, j.tenant as tenant_id,
       case when j.endpoint_key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then j.endpoint_key::uuid end as webhook_endpoint_id,
       case when j.payload ->> 'event' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then (j.payload ->> 'event')::uuid end as event_id,
       case j.status when 'succeeded' then 'DELIVERED' when 'queued' then 'PENDING' when 'running' then 'PENDING'
                     when 'retrying' then 'PENDING' else 'FAILED' end as status,
       case when j.answer ->> 'http_status' ~ '^[0-9]{3}$' then (j.answer ->> 'http_status')::integer end as http_status,
       j.answer -> 'response_headers' as response_headers,
       case when j.answer ->> 'response_body' ~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$'
            then decode(j.answer ->> 'response_body', 'base64') end as response_body,
       case when j.status = 'succeeded' then j.finished_at end as delivered_at,
       case when j.status <> 'succeeded' then j.last_error ->> 'message' end as error_message, j.created_at,
       j.payload ->> 'type' as event_type,
       (select b.body from webhook_bodies b
        where b.id = case when j.payload ->> 'body_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then (j.payload ->> 'body_id')::uuid end
          and b.tenant is not distinct from j.tenant) as body,
       j.status as job_status, j.attempts, j.max_attempts,
       case when j.status in ('queued', 'retrying') then j.run_at end as next_attempt_at, j.finished_at, j.endpoint_key
from (select jobs.*, case when status = 'succeeded' then result else last_error #> '{details,response}' end as answer,
             substring(payload::text from '"endpoint" ?: ?"([0-9a-f-]{36})"') as endpoint_key
      from jobs where task = 'holdfast.webhook') j;
