-- Ends claimed jobs: p_ids/p_tokens succeeded without a result; p_outcomes holds all others (see settle). Answers with
-- the ids that were refused because their token is no longer the job's: a stale worker changes nothing.
-- Called by: workers, in batches; by hand for one job: select finish('{ID}', '{TOKEN}').
-- Locks: the claims (shared, closed ones for good) in token order, then live rows, then dedupe keys in key order, then batch counters;
--   limits last, without ever waiting for them.
-- Wakes: sleepers, through settle.
--
-- p_closed names claims whose last job this call ends; null means "find out", for callers that do not keep count.
create or replace function finish(
    p_ids      uuid[],
    p_tokens   bigint[],
    p_outcomes jsonb default null,
    p_closed   bigint[] default null
) returns setof uuid
language plpgsql security definer
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
set plan_cache_mode = force_generic_plan
as $$
declare
    v_tokens bigint[] := p_tokens || array(
        select (o ->> 'token')::bigint from jsonb_array_elements(coalesce(p_outcomes, '[]')) o);
    v_worker text;
    v_ended  uuid[];
    v_keyed  uuid[];
    v_keys   text[];
    v_moved  uuid[];
    v_batch  uuid[];
    v_freed  freed[];
    v_more   freed[];
    -- Compared, not cast: whatever somebody put into the settings, jobs must be able to end.
    v_counts boolean := (select s.value > '0' from settings s where s.name = 'usage_retention_days');
    v_now    timestamptz;
    v_used   used[];
begin
    if cardinality(p_ids) is distinct from cardinality(p_tokens) then
        raise exception 'finish needs one token for each id, got % ids and % tokens',
            cardinality(p_ids), cardinality(p_tokens) using errcode = 'invalid_parameter_value';
    end if;
    -- The claims first: while we hold them, reclaim leaves them alone, and the two cannot wait for each other's jobs.
    select max(c.worker) into v_worker from (
        select k.worker from claims k where k.token = any (v_tokens) order by k.token for key share) c;
    if p_closed <> '{}' then
        delete from claims c using (select t from unnest(p_closed) t order by t) closed where c.token = closed.t;
    end if;
    if p_ids <> '{}' then
        v_now := clock();
        -- By ctid, each looked up on its own: a join could be planned for an empty table and then read all of a full
        -- one (decision 011). A row that somebody else changes meanwhile has another ctid, and is refused.
        with ended as (
            delete from live where token = any (p_tokens) and ctid = any (array(
                select l.place from unnest(p_ids, p_tokens) as g(id, token) cross join lateral (
                    select l.ctid as place from live l where l.id = g.id and l.token = g.token offset 0) l))
            returning *),
        kept as (
            insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, started_at,
                                 finished_at, queue, task, worker, tenant, payload, dedupe_key, last_error,
                                 batch)
            select id, 'succeeded', priority, attempt, max_attempts, run_at, created_at, claimed_at,
                   v_now, queue, task, v_worker, tenant, payload, dedupe_key, last_error, batch
            from ended returning id, dedupe_key, batch)
        select array_agg(k.id), array_agg(k.id) filter (where k.dedupe_key is not null),
               array_agg(k.dedupe_key) filter (where k.dedupe_key is not null),
               array_agg(k.batch) filter (where k.batch is not null),
               (select array_agg((e.id, e.queue, e.lane, coalesce(e.keys || e.held, e.keys, e.held), 1, null)::freed)
                from ended e where e.keys is not null or e.held is not null),
               (select array_agg(u.part) from (
                    select (coalesce(e.tenant, ''), e.task, count(*), 0,
                            extract(epoch from sum(greatest(v_now - e.claimed_at, interval '0'))),
                            extract(epoch from sum(greatest(e.claimed_at - e.run_at, interval '0'))))::used as part
                    from ended e where v_counts group by e.tenant, e.task) u)
        into v_ended, v_keyed, v_keys, v_batch, v_freed, v_used from kept k;
        if v_used is not null then
            perform count_usage(v_used);
        end if;
        if v_keys is not null then
            perform free_dedupe_keys(v_keys, v_keyed, true);
        end if;
        if v_batch is not null then
            perform count_batch(b.batch, 0, b.jobs, 0, 0)
            from (select batch, count(*) as jobs from unnest(v_batch) batch group by batch) b;
        end if;
    end if;
    if p_outcomes is not null and p_outcomes <> '[]' then
        select array_agg((s.f).id), array_agg(s.f) filter (where (s.f).keys is not null)
        into v_moved, v_more from (select settle(p_outcomes, v_worker) as f offset 0) s;
    end if;
    if p_closed is null then
        perform close_claims(v_tokens);
    end if;
    if v_freed is not null or v_more is not null then
        perform release_limits(v_freed || v_more);
    end if;
    if coalesce(cardinality(v_ended), 0) + coalesce(cardinality(v_moved), 0)
       < coalesce(cardinality(p_ids), 0) + jsonb_array_length(coalesce(p_outcomes, '[]')) then
        return query
            (select unnest(p_ids) union all select (o ->> 'id')::uuid from jsonb_array_elements(p_outcomes) o)
            except all (select unnest(v_ended) union all select unnest(v_moved));
    end if;
end $$;
