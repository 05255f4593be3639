-- End claimed jobs: those in p_ids and p_tokens succeeded without a result, all others are in p_outcomes (see settle).
-- For one job by hand: select finish('{ID}', '{TOKEN}').
-- Parameters: p_closed names the claims whose last job this call ends; null, for callers that keep no count, means that
--   finish looks them up. It does so too if it leaves a job: only reclaim_orphans() would find a job whose claim is
--   gone. p_locked applies to a job whose row another transaction holds, such as an open one that called cancel():
--   "wait" for it, "fail" with 55P03 after 0.1 s, or "skip" it. Workers try "fail" first, since it needs no locks
--   beforehand.
-- Returns: the ids that were rejected because the token is no longer the job's: a stale worker changes nothing. Also
--   the ids of jobs that were skipped, or that name a block whose key is locked; they are unchanged and to be sent
--   again. held_jobs() separates them from stale ones.
-- Locks: live rows, then dedupe keys in key order, then batch counters; limits; closed claims last. It waits for
--   neither limits nor claims, and for a job's row as p_locked demands.
-- Wakes: sleepers, through settle.
create or replace function finish(p_ids uuid[], p_tokens bigint[], p_outcomes jsonb default null,
    p_closed bigint[] default null, p_locked text default 'wait') returns setof uuid
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    v_tokens bigint[] := p_tokens || array(
        select (o ->> 'token')::bigint from jsonb_array_elements(coalesce(p_outcomes, '[]')) o);
    v_worker text; v_places tid[]; v_ended uuid[]; v_keyed uuid[]; v_keys text[]; v_moved uuid[]; v_batch uuid[];
    v_freed freed[]; v_more freed[]; v_followed uuid[];
    v_now timestamptz;
    v_used used[]; v_counted counted[]; v_locked text[]; v_rest jsonb := p_outcomes; v_left bigint;
begin
    if cardinality(p_ids) is distinct from cardinality(p_tokens) then
        raise exception 'finish needs one token for each id, got % ids and % tokens',
            cardinality(p_ids), cardinality(p_tokens) using errcode = 'invalid_parameter_value';
    end if;
    if p_locked = 'fail' then perform set_config('lock_timeout', '100ms', true); end if;
    v_worker := (select max(c.worker) from claims c where c.token = any (v_tokens));
    if p_ids <> '{}' then
        v_now := clock();
        -- By ctid, each looked up on its own: a join could be planned for an empty table and then read all of a full
        -- one (decision 011). A row that another transaction updates meanwhile has another ctid and is rejected.
        if p_locked = 'skip' then
            v_places := array(
                select l.place from unnest(p_ids, p_tokens) as g(id, token) cross join lateral (
                    select l.ctid as place from live l where l.id = g.id and l.token = g.token for update skip locked) l);
        elsif p_locked = 'fail' then
            v_places := array(
                select l.place from unnest(p_ids, p_tokens) as g(id, token) cross join lateral (
                    select l.ctid as place from live l where l.id = g.id and l.token = g.token offset 0) l);
        else
            v_places := array(
                select l.place from (select * from unnest(p_ids, p_tokens) as g(id, token) order by g.id) g cross join lateral (
                    select l.ctid as place from live l where l.id = g.id and l.token = g.token for update) l);
        end if;
        with ended as (delete from live where token = any (p_tokens) and ctid = any (v_places) returning *),
        kept as (
            insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, started_at,
                                 finished_at, queue, task, worker, tenant, payload, dedupe_key, last_error, batch,
                                 failures)
            select id, 'succeeded', priority, attempt, max_attempts, run_at, created_at, claimed_at,
                   v_now, queue, task, v_worker, tenant, payload, dedupe_key, last_error, batch, failures
            from ended returning id, dedupe_key, batch),
        parts as materialized (  -- a few rows, of which usage and attempts are summed
            select e.queue, e.task, e.tenant, wait_step(e.waited) as wait, count(*) as jobs, sum(e.ran) as ran, sum(e.waited) as waited
            from (select queue, task, tenant, greatest(date_part('epoch', claimed_at - run_at), 0) as waited,
                         greatest(date_part('epoch', v_now - claimed_at), 0) as ran from ended offset 0) e
            group by e.queue, e.task, e.tenant, wait_step(e.waited))
        select array_agg(k.id), array_agg(k.id) filter (where k.dedupe_key is not null),
               array_agg(k.dedupe_key) filter (where k.dedupe_key is not null),
               array_agg(k.batch) filter (where k.batch is not null),
               (select array_agg((e.id, coalesce(e.keys || e.held, e.keys, e.held), 1, null)::freed)
                from ended e where e.keys is not null or e.held is not null),
               (select array_agg(e.id) from ended e where e.followed),
               (select array_agg(u.part) from (
                    select (coalesce(p.tenant, ''), p.task, sum(p.jobs), 0, sum(p.ran), sum(p.waited))::used as part
                    from parts p  -- compared, not cast: an invalid setting must not keep jobs from ending
                    where (select s.value > '0' from settings s where s.name = 'usage_retention_days') group by p.tenant, p.task) u),
               (select array_agg(c.part) from (
                    select (p.queue, p.task, p.wait, sum(p.jobs), 0, 0, sum(p.ran))::counted as part
                    from parts p group by p.queue, p.task, p.wait) c)
        into v_ended, v_keyed, v_keys, v_batch, v_freed, v_followed, v_used, v_counted from kept k;
        if v_followed is not null then
            insert into endings (job, status, durable, followed) select f, 'succeeded', false, true from unnest(v_followed) f;
            perform process_endings();
        end if;
        perform count_attempts(v_counted);
        if v_used is not null then perform count_usage(v_used); end if;
        if v_keys is not null then perform free_dedupe_keys(v_keys, v_keyed, true); end if;
        if v_batch is not null then
            perform count_batch(b.batch, 0, b.jobs, 0, 0)
            from (select batch, count(*) as jobs from unnest(v_batch) batch group by batch) b;
        end if;
    end if;
    if p_outcomes is not null and p_outcomes <> '[]' then
        if p_locked = 'wait' then  -- settle skips locked rows
            perform 1 from (select * from jsonb_to_recordset(p_outcomes) as g(id uuid, token bigint) order by g.id) g
            cross join lateral (select 1 from live l where l.id = g.id and l.token = g.token for update) l;
        elsif p_locked = 'skip' then  -- note_block would wait for these
            v_locked := locked_blocks(array(
                select distinct left(o #>> '{error,block}', 500) from jsonb_array_elements(p_outcomes) o
                where o #>> '{error,block}' <> ''));
            if v_locked <> '{}' then
                v_rest := (
                    select coalesce(jsonb_agg(o), '[]') from jsonb_array_elements(p_outcomes) o
                    where (left(o #>> '{error,block}', 500) = any (v_locked)) is not true);
            end if;
        end if;
        select array_agg((s.f).id), array_agg(s.f) filter (where (s.f).keys is not null)
        into v_moved, v_more from (select settle(v_rest, v_worker) as f offset 0) s;
    end if;
    if v_freed is not null or v_more is not null then perform release_limits(v_freed || v_more); end if;
    v_left := coalesce(cardinality(p_ids), 0) + coalesce(jsonb_array_length(p_outcomes), 0)
        - coalesce(cardinality(v_ended), 0) - coalesce(cardinality(v_moved), 0);
    if p_closed is null or v_left > 0 and p_closed <> '{}' then
        perform close_claims(coalesce(p_closed, v_tokens));
    elsif p_closed <> '{}' then
        -- A claim that is being renewed now stays until it has expired.
        delete from claims where ctid = any (array(
            select c.ctid from claims c where c.token = any (p_closed) for update skip locked));
    end if;
    if v_left > 0 then
        return query (select unnest(p_ids) union all select (o ->> 'id')::uuid from jsonb_array_elements(p_outcomes) o)
            except all (select unnest(v_ended) union all select unnest(v_moved));
    end if;
end $$;
