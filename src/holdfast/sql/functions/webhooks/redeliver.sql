-- Deliver again. Return for each id: retried (it had failed and is queued with fresh attempts), copied (it had ended;
-- `delivery` is the id of a new delivery of the same event), due (it was waiting and is due now), running, disabled
-- (its endpoint is disabled, and nothing was done) or unknown.
-- Locks: as retry_dead; then later rows in id order; then the bodies of the copied deliveries.
-- Wakes: sleepers of the queue.
create or replace function redeliver(p_ids uuid[]) returns table (id uuid, outcome text, delivery uuid)
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    v_ids uuid[] := array(select distinct i from unnest(p_ids) i); v_shut uuid[]; v_back uuid[]; v_due uuid[];
    v_old uuid[]; v_copies uuid[];
begin
    v_shut := array(
        select j.id from jobs j where j.id = any (v_ids) and j.task = 'holdfast.webhook' and (
            select not e.enabled from webhook_endpoints e
            where e.id = case when j.payload ->> 'endpoint' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                              then (j.payload ->> 'endpoint')::uuid end));
    v_ids := array(select i from unnest(v_ids) i where i <> all (v_shut));
    v_back := array(select retry_dead(array(
        select d.id from dead d where d.id = any (v_ids) and d.task = 'holdfast.webhook')));
    -- In a statement of its own: a row that changed while it was waited for has a place that this snapshot does not show.
    perform 1 from later l where l.id = any (v_ids) and l.task = 'holdfast.webhook' order by l.id for update;
    with hurried as (
        update later l set run_at = least(l.run_at, clock()) where l.ctid = any (array(
            select h.ctid from later h where h.id = any (v_ids) and h.task = 'holdfast.webhook')) returning l.id)
    select coalesce(array_agg(h.id), '{}') into v_due from hurried h;
    select coalesce(array_agg(h.id order by h.id), '{}'), coalesce(array_agg(uuid7() order by h.id), '{}') into v_old, v_copies
    from (select distinct h.id from history h
          where h.id = any (v_ids) and h.task = 'holdfast.webhook'
            and h.payload ->> 'endpoint' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$') h;
    insert into live (id, queue, priority, lane, run_at, created_at, max_attempts, task, tenant, payload, keys)
    select c.copy, h.queue, h.priority, lane_of(h.tenant, h.keys), clock(), clock(), h.max_attempts, h.task, h.tenant, h.payload,
           h.keys
    from unnest(v_old, v_copies) as c(old, copy) cross join lateral (
        select h.queue, h.priority, h.max_attempts, h.task, h.tenant, h.payload,
               delivery_keys((h.payload ->> 'endpoint')::uuid) as keys
        from history h where h.id = c.old limit 1) h
    order by c.copy;
    update webhook_bodies b set deliveries = b.deliveries || c.copies
    from (select case when h.payload ->> 'body_id' ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then (h.payload ->> 'body_id')::uuid end as body, array_agg(l.copy order by l.copy) as copies
          from unnest(v_old, v_copies) as l(old, copy) cross join lateral (
              select h.payload from history h where h.id = l.old limit 1) h
          group by 1 order by 1) c
    where b.id = c.body;
    if v_due <> '{}' or v_copies <> '{}' then
        perform wake('webhooks', cardinality(v_due) + cardinality(v_copies));
    end if;
    return query
        select g.id, case when g.id = any (v_back) then 'retried' when g.id = any (v_due) then 'due'
                          when g.id = any (v_old) then 'copied'
                          when g.id = any (v_shut) then 'disabled' else coalesce((
                              select case when l.token is null then 'due' else 'running' end
                              from live l where l.id = g.id and l.task = 'holdfast.webhook'), 'unknown') end,
               coalesce(v_copies[array_position(v_old, g.id)], case when g.id = any (v_back || v_due) then g.id end)
        from unnest(p_ids) with ordinality as g(id, place) order by g.place;
end $$;
