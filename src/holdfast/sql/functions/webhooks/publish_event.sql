-- Publish an event: create a delivery for each enabled endpoint of the tenant (without one: endpoints of no tenant)
-- that subscribes to this type. They are sent once this transaction has committed. Return the ids of the event and the
-- deliveries, and the outcome: created, or existing (the event, or another with this key, was published before). p_body
-- is sent and signed unchanged. p_key identifies what must not be published twice. p_fresh: p_event was never sent
-- before, which saves the lookup of its deliveries.
-- Locks: the event's key, then the deliveries' own rows. Wakes: sleepers of the queue.
create or replace function publish_event(p_type text, p_body text, p_tenant text default null,
    p_event uuid default null, p_key text default null, p_priority integer default 2,
    p_max_attempts integer default null, p_retry jsonb default null, p_fresh boolean default false, out event uuid,
    out deliveries uuid[], out outcome text)
language plpgsql security definer set search_path from current set jit = off as $$
declare
    v_known boolean := p_event is not null and not p_fresh; v_endpoints uuid[]; v_taken boolean := true;
begin
    if v_known and current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'cannot publish with a given id in a % transaction: it may not see that the event was already published',
            current_setting('transaction_isolation')
            using errcode = 'invalid_parameter_value', constraint = 'event', hint = 'use read committed, or let publish_event generate the id';
    end if;
    event := coalesce(p_event, uuid7());
    if p_key is not null then
        select k.holder, k.taken into event, v_taken from take_outbox_key('holdfast.webhooks', p_tenant, p_key, event) k;
    end if;
    v_endpoints := array(
        select m.id from (
            select e.id, e.events from webhook_endpoints e where e.tenant = p_tenant and e.enabled
            union all
            select e.id, e.events from webhook_endpoints e where p_tenant is null and e.tenant is null and e.enabled) m
        where m.events is null or p_type = any (m.events) or exists (
            select 1 from unnest(m.events) x where right(x, 2) = '.*' and starts_with(p_type, left(x, -1))));
    if v_taken then
        deliveries := add_deliveries(event, p_type, p_body, p_tenant, v_endpoints, v_known, p_priority, p_max_attempts, p_retry);
    end if;
    outcome := case when v_taken and (deliveries <> '{}' or not v_known) then 'created' else 'existing' end;
    if outcome = 'existing' then
        deliveries := array(
            select d.id from (select delivery_id(event, e) as id from unnest(v_endpoints) e) d
            where times_accepted(d.id) > 0 order by d.id);
    end if;
end $$;
