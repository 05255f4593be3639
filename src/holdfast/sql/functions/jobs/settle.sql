-- Decide what happens to claimed jobs that did not simply succeed, and move them. This is the only place that decides
-- between retry and dead. A job with a cancel request does not wait again: it is canceled. A job that waits again keeps
-- its order ("order:..."), so that later jobs of the order wait for its end. It moves to the lane of its other limits,
-- because the order's lane is closed.
-- Parameters: each outcome is an object: {"id", "token", "outcome", "result", "error", "delay" (seconds; else by the
--   retry policy), "counts" (the limits for which a failure counts; else all of the job's)}, with outcome one of
--   succeeded | canceled | failed (permanent) | dead (fatal now)   -> final
--   error | lost (its lease expired)  -> dead when attempts are used up, else retried
--   snoozed | released                -> waits again, attempt refunded
--   parked (with "wait", see park)    -> the same, until its sleep is over or what it waits for has happened
-- Returns: the jobs it moved and the limits they were counted under, which the caller releases. Jobs whose token has
--   changed are omitted, and so are jobs whose row another transaction holds: those stay unchanged for the next call.
-- Locks: live rows, skipping locked ones, then their dedupe keys, then batch counters, then blocks and kept orders by
--   key. Failures are appended to error_arrivals, where nothing waits.
-- Wakes: sleepers of queues that got a job back at once.
create or replace function settle(p_outcomes jsonb, p_worker text) returns setof freed
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan as $$
declare
    v_counts boolean := (select s.value > '0' from settings s where s.name = 'usage_retention_days');
    v_now timestamptz := clock(); v_places tid[];
begin
    -- In a statement of its own: the next one sees every cancel request that was committed before its job was locked here.
    v_places := array(
        select (select l.ctid from live l where l.id = g.id and l.token = g.token for update skip locked)
        from jsonb_to_recordset(p_outcomes) as g(id uuid, token bigint));
    if p_outcomes @> '[{"outcome": "parked"}]' then
        select p.p_outcomes, p.p_places into p_outcomes, v_places from park(p_outcomes, v_places) p;
    end if;
    return query
    with given as materialized (  -- distinct: a job that is listed twice must not end twice
        select distinct on (g.id, g.token) g.* from rows from (
            jsonb_to_recordset(p_outcomes) as (
                id uuid, token bigint, outcome text, result jsonb, error jsonb, delay double precision, counts jsonb, waits_for text),
            unnest(v_places)) as g(id, token, outcome, result, error, delay, counts, waits_for, place)
        where g.place is not null order by g.id, g.token),
    -- Looked up one by one and moved by ctid: a join could be planned for an empty table and then read all of a full one
    -- (decision 011).
    held as materialized (
        select l.*, row_number() over () as number, g.outcome, g.result, g.error, g.delay, g.counts, g.waits_for,
            case when (g.outcome in ('succeeded', 'canceled', 'snoozed', 'released', 'parked')) is not true
                 then case when octet_length(g.error ->> 'fingerprint') = 16
                           and translate(g.error ->> 'fingerprint', '0123456789abcdef', '') = '' then g.error ->> 'fingerprint'
                           else fingerprint_of(l.task, g.error) end collate "C" end as fingerprint
        from (select * from given order by id) g cross join lateral (
            select l.ctid as place, l.id, l.task, l.attempt, l.max_attempts, l.retry
            from live l where l.ctid = g.place and l.token = g.token offset 0) l),
    decided as materialized (
        select h.place, h.id, h.number, h.result, h.counts, h.outcome, h.fingerprint, h.waits_for as parked_for,
            case when h.fingerprint <> coalesce(h.error ->> 'fingerprint', '') and jsonb_typeof(h.error) = 'object'
                 then h.error || jsonb_build_object('fingerprint', h.fingerprint) else h.error end as error,
            case when h.outcome = 'succeeded' then 1 when h.outcome in ('error', 'failed', 'dead') then -1 else 0 end as went,
            (h.outcome in ('succeeded', 'canceled')) is not true as fails, h.outcome = 'lost' as lost,
            case when h.outcome in ('succeeded', 'canceled', 'failed', 'dead') then h.outcome
                 when exists (select 1 from cancels c where c.id = h.id) then 'canceled'
                 when h.outcome in ('snoozed', 'released', 'parked') then 'waits'
                 -- error, lost and unknown outcomes: no outcome may remove a job from all tables
                 when h.attempt >= h.max_attempts then 'dead'
                 else 'waits' end as verdict,
            (h.outcome in ('snoozed', 'released', 'parked'))::integer as refund, h.outcome = 'released' as released,
            case when h.outcome = 'released' then interval '0'
                 when h.delay is not null then make_interval(secs => least(greatest(h.delay, 0), 315360000))
                 -- Due at once after a first lost lease. After more, the delay is random: jobs claimed together with
                 -- one that kills its worker must not be claimed together with it every time.
                 when h.outcome = 'lost' and h.attempt = 1 then interval '0'
                 else retry_delay(coalesce(h.retry, (select t.retry from tasks t where t.name = h.task)), h.attempt)
                      * case h.outcome when 'lost' then random() else 1 end
            end as delay
        from held h),
    gone as (delete from live where ctid = any (array(select d.place from decided d)) returning *),
    moved as materialized (
        select g.*, d.number, d.verdict, d.delay, d.outcome, d.parked_for, coalesce(d.refund, 0) as refund, d.result, d.went, d.fails, d.lost, d.counts, d.released,
               coalesce(d.error, g.last_error) as error, d.fingerprint,
               case when d.fingerprint is null then g.failures
                    else g.failures[greatest(cardinality(g.failures) - 18, 1):] || (  -- the last 20
                        g.attempt, g.claimed_at, v_now, p_worker, d.outcome, left(d.error ->> 'type', 200),
                        left(d.error ->> 'message', 500), left(d.error ->> 'code', 200), left(d.error ->> 'frame', 300),
                        d.fingerprint)::failed_attempt end as past,
               case when g.keys is not null or g.held is not null then nullif(orders_of(g.keys || g.held), '{}') end as orders
        from gone g join decided d on d.id = g.id),
    waits as materialized (
        select m.*, case when m.orders is null then m.lane else lane_of(m.tenant, o.rest) end as own, o.rest
        from moved m cross join lateral (
            select case when m.orders is null then m.keys else nullif(free_keys(m.keys, m.orders), '{}') end as rest) o
        where m.verdict = 'waits'),
    back as (
        insert into live (id, queue, priority, lane, run_at, created_at, attempt, max_attempts, task, tenant, payload,
                          dedupe_key, retry, last_error, deadline, batch, headers, keys, held, failures, durable, followed)
        select id, queue, priority, own, case when outcome = 'parked' then v_now else run_at end, created_at, attempt - refund, max_attempts, task, tenant, payload,
               dedupe_key, retry, error, case when outcome = 'parked' then null else deadline end, batch, headers, rest, orders, past,
               durable, followed
        from waits where delay <= interval '0' on conflict do nothing returning queue),
    to_later as (
        insert into later (id, queue, priority, lane, run_at, created_at, attempt, max_attempts, task, tenant, payload,
                           dedupe_key, retry, last_error, deadline, batch, headers, keys, held, failures, durable, followed, waits_for)
        select id, queue, priority, own, v_now + delay, created_at, attempt - refund, max_attempts, task, tenant,
               payload, dedupe_key, retry, error, case when outcome = 'parked' then null else deadline end, batch, headers, rest, orders, past,
               durable, followed, parked_for
        from waits where delay > interval '0' on conflict do nothing),
    to_dead as (
        insert into dead (id, status, queue, priority, lane, run_at, created_at, started_at, finished_at, attempt,
                          max_attempts, worker, task, tenant, payload, dedupe_key, retry, last_error, dedupe_scope,
                          dedupe_keep, batch, headers, keys, failures, fingerprint)
        select id, verdict::job_status, queue, priority,
               case when orders is null then lane else lane_of(tenant, every) end, run_at, created_at, claimed_at, v_now,
               attempt, max_attempts, p_worker, task, tenant, payload, dedupe_key, retry, error,
               -- Kept for a retry by an operator: the key itself is released now.
               (select k.scope from dedupe k where k.key = m.dedupe_key and k.id = m.id),
               (select k.keep from dedupe k where k.key = m.dedupe_key and k.id = m.id), batch, headers, every, past, fingerprint
        from moved m cross join lateral (
            select case when orders is null then keys else array(select unnest(keys) union select unnest(orders)) end as every) k
        where verdict in ('failed', 'dead') on conflict do nothing),
    to_history as (
        insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, started_at, finished_at,
                             queue, task, worker, tenant, payload, result, dedupe_key, last_error, batch, failures)
        select id, verdict::job_status, priority, attempt, max_attempts, run_at, created_at, claimed_at, v_now,
               queue, task, p_worker, tenant, payload, result, dedupe_key, error, batch, past
        from moved where verdict in ('succeeded', 'canceled')),
    ended as (
        insert into endings (job, status, durable, followed)
        select id, verdict, coalesce(durable, false) and verdict <> 'succeeded', coalesce(followed, false) from moved
        where verdict <> 'waits' and (followed or durable and verdict <> 'succeeded')),
    answered as (delete from cancels where id = any (array(select m.id from moved m where m.verdict <> 'waits'))),
    freed as (
        select free_dedupe_keys(array_agg(dedupe_key), array_agg(id), verdict = 'succeeded')
        from moved where dedupe_key is not null and verdict <> 'waits' group by verdict = 'succeeded'),
    kept_keys as (
        select take_back_keys(array_agg(dedupe_key), array_agg(id))
        from moved where dedupe_key is not null and verdict = 'waits' and released having count(*) > 0),
    counted as (
        select count_batch(batch, 0, count(*) filter (where verdict = 'succeeded'),
                           count(*) filter (where verdict in ('failed', 'dead')),
                           count(*) filter (where verdict = 'canceled'))
        from moved where batch is not null and verdict <> 'waits' group by batch),
    parts as materialized (  -- a few rows, of which usage and attempts are summed; released and snoozed jobs are no attempts
        select e.queue, e.task, e.tenant, wait_step(e.waited) as wait, count(*) as jobs, count(*) filter (where e.fails) as failed,
               count(*) filter (where e.lost) as lost, sum(e.ran) as ran, sum(e.waited) as waited
        from (select queue, task, tenant, fails, lost, greatest(date_part('epoch', claimed_at - run_at), 0) as waited,
                     greatest(date_part('epoch', v_now - claimed_at), 0) as ran from moved where refund = 0 offset 0) e
        group by e.queue, e.task, e.tenant, wait_step(e.waited)),
    used as (
        select count_usage(array_agg(u.part)) from (
            select (coalesce(p.tenant, ''), p.task, sum(p.jobs), sum(p.failed), sum(p.ran), sum(p.waited))::used as part
            from parts p where v_counts group by p.tenant, p.task) u),
    attempts as (
        select count_attempts(array_agg(c.part)) from (
            select (p.queue, p.task, p.wait, sum(p.jobs), sum(p.failed), sum(p.lost), sum(p.ran))::counted as part
            from parts p group by p.queue, p.task, p.wait) c),
    in_groups as (  -- one row, whatever the number of groups; fold_errors counts it
        insert into error_arrivals (failed)
        select array_agg((f.fingerprint, f.task, (f.last).type, (f.last).code, (f.last).message, (f.last).frame, f.attempts,
                          f.dead, f.id, v_now)::failed)
        from (
            select n.*, m.task, m.id, m.past[cardinality(m.past)] as last from (
                select fingerprint, min(number) as number, count(*) as attempts,
                       count(*) filter (where verdict in ('failed', 'dead')) as dead
                from moved where fingerprint is not null group by fingerprint) n
            join moved m on m.number = n.number offset 0) f
        having count(*) > 0),
    blocked as (
        select note_block(b.key, b.reason, b.id) from (
            select error ->> 'block' as key, concat_ws(': ', error ->> 'code', error ->> 'message') as reason, id
            from moved where verdict = 'dead' and error ->> 'block' <> '' order by 1) b),
    kept as (
        insert into kept_orders (key, id) select k, w.id from waits w, unnest(w.orders) k
        on conflict (key) do update set id = excluded.id),
    woken as (select wake(queue, count(*)) from back group by queue)
    select m.id,
           case when m.verdict <> 'waits' or m.orders is null then coalesce(m.keys || m.held, m.keys, m.held)
                else nullif(free_keys(m.keys || m.held, m.orders), '{}') end, m.went,
           case when jsonb_typeof(m.counts) = 'array' then array(select jsonb_array_elements_text(m.counts)) end
    from moved m
    where (select count(*) from freed) >= 0 and (select count(*) from kept_keys) >= 0 and (select count(*) from counted) >= 0
      and (select count(*) from used) >= 0 and (select count(*) from attempts) >= 0 and (select count(*) from blocked) >= 0 and (select count(*) from woken) >= 0;
    if exists (select 1 from endings e where e.xid = pg_current_xact_id_if_assigned()) then perform process_endings(); end if;
end $$;
