-- Create one delivery of an event per endpoint: a job under the limits of its endpoint and host. The body is stored
-- once for all of them. Return the deliveries' ids. p_known: the event may have been published before; deliveries that
-- already exist are not created again.
-- Locks: the jobs' own rows, in id order; the body's. Wakes: sleepers of the queue.
create or replace function add_deliveries(p_event uuid, p_type text, p_body text, p_tenant text, p_endpoints uuid[],
    p_known boolean, p_priority integer, p_max_attempts integer default null, p_retry jsonb default null) returns uuid[]
language plpgsql set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v_max integer := p_max_attempts; v_body uuid := uuid7(); v_ids uuid[]; v_twice uuid[];
begin
    if v_max is null then
        v_max := coalesce((select t.max_attempts from tasks t where t.name = 'holdfast.webhook'), 10);
    end if;
    perform check_job('holdfast.webhook', 'webhooks', p_tenant, p_priority, v_max, '{}', clock());
    if (p_type ~ '^[!-~]{1,200}$') is not true then
        raise exception 'an event''s type must have 1 to 200 ASCII characters and no spaces, as it is sent in a header; got %',
            coalesce(quote_literal(left(p_type, 60)), 'null')
            using errcode = 'invalid_parameter_value', constraint = 'event';
    elsif p_body is null then
        raise exception 'an event needs a body' using errcode = 'invalid_parameter_value', constraint = 'event';
    end if;
    with placed as (
        insert into live (id, queue, priority, lane, run_at, created_at, max_attempts, task, tenant, payload, retry, keys)
        select d.id, 'webhooks', p_priority, lane_of(p_tenant, d.keys), clock(), clock(), v_max, 'holdfast.webhook', p_tenant,
               json_build_object('endpoint', d.endpoint, 'event', p_event, 'type', p_type, 'body_id', v_body), p_retry, d.keys
        from (select e as endpoint, delivery_id(p_event, e) as id, delivery_keys(e) as keys
              from unnest(p_endpoints) e order by 2) d
        on conflict do nothing returning id)
    select coalesce(array_agg(p.id order by p.id), '{}') into v_ids from placed p;
    -- Checked after the insert, which may have waited for a job to end and now sees where that job is.
    if p_known and v_ids <> '{}' then
        v_twice := array(select i from unnest(v_ids) i where times_accepted(i) > 1);
        delete from live l where l.id = any (v_twice);
        v_ids := array(select i from unnest(v_ids) i where i <> all (v_twice));
    end if;
    if v_ids <> '{}' then
        insert into webhook_bodies (id, tenant, body, deliveries, expires_at)
        values (v_body, p_tenant, p_body, v_ids,
                clock() + make_interval(days => (select s.value::integer from settings s where s.name = 'history_retention_days')));
    end if;
    if v_ids <> '{}' and exists (select 1 from sleepers s where s.queue = 'webhooks') then
        perform wake('webhooks', cardinality(v_ids));
    end if;
    return v_ids;
end $$;
