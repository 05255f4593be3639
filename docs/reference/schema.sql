-- The schema as PostgreSQL 18 dumps it, without history's daily partitions. Made by `make schema`.

-- PostgreSQL database dump


-- Name: holdfast; Type: SCHEMA; Schema: -; Owner: -

CREATE SCHEMA holdfast;


-- Name: attempt_limit; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.attempt_limit AS smallint
	CONSTRAINT attempt_limit_check CHECK (((VALUE >= 1) AND (VALUE <= 32000)));


-- Name: dedupe_scope; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.dedupe_scope AS ENUM (
    'queued',
    'running',
    'success'
);


-- Name: job_status; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.job_status AS ENUM (
    'queued',
    'running',
    'retrying',
    'succeeded',
    'failed',
    'dead',
    'canceled'
);


-- Name: priority_level; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.priority_level AS smallint
	CONSTRAINT priority_level_check CHECK (((VALUE >= 0) AND (VALUE <= 3)));


-- Name: queue_name; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.queue_name AS text
	CONSTRAINT queue_name_check CHECK ((((length(VALUE) >= 1) AND (length(VALUE) <= 100)) AND (strpos(VALUE, '/'::text) = 0)));


-- Name: task_name; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.task_name AS text
	CONSTRAINT task_name_check CHECK (((length(VALUE) >= 1) AND (length(VALUE) <= 200)));


-- Name: tenant_name; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.tenant_name AS text
	CONSTRAINT tenant_name_check CHECK (((length(VALUE) >= 1) AND (length(VALUE) <= 200)));


-- Name: cancel(uuid[]); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.cancel(p_ids uuid[]) RETURNS TABLE(id uuid, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_rest     uuid[] := p_ids;
    v_again    uuid[];
    v_canceled uuid[];
begin
    -- A job may move between later and live while we look. One statement sees each job in exactly one place, so those
    -- it still sees waiting are tried again.
    loop
        v_canceled := array(select cancel_waiting(v_rest));
        v_again := '{}';
        for id, outcome in
            select r, case when r = any (v_canceled) then 'canceled'
                           when t.id is not null or (l.id is not null and l.token is null) then 'waiting'
                           when l.id is not null then 'running'
                           when k.id is not null then 'finished'
                           else 'unknown' end
            from unnest(v_rest) r
                left join lateral (select l.id, l.token from live l where l.id = r offset 0) l on true
                left join lateral (select t.id from later t where t.id = r offset 0) t on true
                left join lateral (
                    select d.id from dead d where d.id = r
                    union all select h.id from history h where h.id = r limit 1) k on true
        loop
            if outcome = 'waiting' then
                v_again := v_again || id;
            else
                return next;
            end if;
        end loop;
        exit when v_again = '{}';
        v_rest := v_again;
    end loop;
end $$;


-- Name: cancel_waiting(uuid[]); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.cancel_waiting(p_ids uuid[]) RETURNS SETOF uuid
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
#variable_conflict use_column
begin
    return query
        with gone as (
            delete from later where ctid = any (array(
                select l.ctid from later l where l.id = any (p_ids) order by l.id for update))
            returning *),
        kept as (
            insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at,
                                 queue, task, tenant, payload, dedupe_key, last_error)
            select g.id, 'canceled', priority, attempt, max_attempts, run_at, created_at, clock(),
                   queue, task, tenant, payload, dedupe_key, last_error
            from gone g returning id, dedupe_key),
        freed as (select free_dedupe_keys(array_agg(dedupe_key), array_agg(k.id), false) from kept k
                  where dedupe_key is not null)
        select k.id from kept k where (select count(*) from freed) >= 0;
    return query
        with gone as (
            delete from live where ctid = any (array(
                select l.ctid from live l where l.id = any (p_ids) and l.token is null order by l.id for update))
            returning *),
        kept as (
            insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, finished_at,
                                 queue, task, tenant, payload, dedupe_key, last_error)
            select g.id, 'canceled', priority, attempt, max_attempts, run_at, created_at, clock(),
                   queue, task, tenant, payload, dedupe_key, last_error
            from gone g returning id, dedupe_key),
        freed as (select free_dedupe_keys(array_agg(dedupe_key), array_agg(k.id), false) from kept k
                  where dedupe_key is not null)
        select k.id from kept k where (select count(*) from freed) >= 0;
end $$;


-- Name: check_job(text, text, text, integer, integer, jsonb, timestamp with time zone); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.check_job(p_task text, p_queue text, p_tenant text, p_priority integer, p_max_attempts integer, p_payload jsonb, p_run_at timestamp with time zone) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
    if p_task is null or length(p_task) not between 1 and 200 then
        raise exception 'a task name has 1 to 200 characters, got %', coalesce(left(p_task, 60), 'null')
            using errcode = 'invalid_parameter_value';
    elsif p_queue is null or length(p_queue) not between 1 and 100 or strpos(p_queue, '/') > 0 then
        raise exception 'a queue name has 1 to 100 characters and no slash, got %', coalesce(left(p_queue, 60), 'null')
            using errcode = 'invalid_parameter_value';
    elsif length(p_tenant) not between 1 and 200 then
        raise exception 'a tenant has 1 to 200 characters, got %', left(p_tenant, 60)
            using errcode = 'invalid_parameter_value';
    elsif p_priority is null or p_priority not between 0 and 3 then
        raise exception 'priority is 0 (critical), 1 (high), 2 (normal) or 3 (low), got %', coalesce(p_priority::text, 'null')
            using errcode = 'invalid_parameter_value';
    elsif p_max_attempts not between 1 and 32000 then
        raise exception 'max_attempts is 1 to 32000, got %', p_max_attempts
            using errcode = 'invalid_parameter_value';
    elsif jsonb_typeof(p_payload) is distinct from 'object' then
        raise exception 'a payload is a JSON object of the task''s arguments, got %', coalesce(jsonb_typeof(p_payload), 'null')
            using errcode = 'invalid_parameter_value';
    elsif p_run_at not between '1970-01-01' and '9999-12-31' then
        raise exception 'run_at is a time from the year 1970 to 9999, got %', p_run_at
            using errcode = 'invalid_parameter_value';
    end if;
end $$;


-- Name: claim(text, text[], integer, interval, jsonb, boolean); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.claim(p_worker text, p_queues text[] DEFAULT '{default}'::text[], p_limit integer DEFAULT 1, p_ttl interval DEFAULT '00:01:00'::interval, p_after jsonb DEFAULT NULL::jsonb, p_asleep boolean DEFAULT false) RETURNS TABLE(id uuid, token bigint, task holdfast.task_name, payload json, attempt smallint, max_attempts holdfast.attempt_limit, queue holdfast.queue_name, priority holdfast.priority_level, tenant holdfast.tenant_name, run_at timestamp with time zone, created_at timestamp with time zone, dedupe_key text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    v_token bigint;
    v_ids   uuid[] := '{}';
    v_rows  tid[] := '{}';
    v_more  uuid[];
    v_tids  tid[];
    v_keys  bigint := 0;
    v_keyed bigint;
    v_place jsonb;
    v_room  integer := p_limit;
    v_queue text;
begin
    if p_limit is null or p_limit < 1 or p_ttl is null or p_ttl <= interval '0' then
        raise exception 'claim needs a limit and a lease above zero, got % and %', p_limit, p_ttl
            using errcode = 'invalid_parameter_value';
    end if;
    if cardinality(p_queues) > 1 then  -- a queue named twice would be found twice
        p_queues := array(select q from unnest(p_queues) with ordinality as u(q, n) group by q order by min(n));
    end if;
    for v_priority in 0..3 loop
        foreach v_queue in array p_queues loop
            v_place := p_after -> (v_queue || '/' || v_priority);
            select array_agg(c.id), array_agg(c.ctid), count(c.dedupe_key) into v_more, v_tids, v_keyed from (
                select l.id, l.ctid, l.dedupe_key from live l
                where l.queue = v_queue and l.priority = v_priority and l.lane = 0
                  and (l.run_at, l.id) > (coalesce(to_timestamp((v_place ->> 0)::double precision), '-infinity'),
                                          coalesce((v_place ->> 1)::uuid, '00000000-0000-0000-0000-000000000000'))
                  and l.token is null
                order by l.queue, l.priority, l.lane, l.run_at, l.id
                limit v_room for update skip locked) c;
            if v_more is not null then
                v_ids := v_ids || v_more;
                v_rows := v_rows || v_tids;
                v_keys := v_keys + v_keyed;
                v_room := v_room - cardinality(v_more);
                exit when v_room <= 0;
            end if;
        end loop;
        exit when v_room <= 0;
    end loop;
    if v_room > 0 and exists (
        select 1 from later t where t.run_at <= clock() and t.run_at >= clock() - interval '10 seconds') then
        -- What has just become due is taken here, not left for the leader: delayed jobs start on time.
        v_more := promote(greatest(v_room, 100), interval '10 seconds');
        if v_more <> '{}' then
            v_more := array(
                select l.id from live l where l.id = any (v_more) and l.queue = any (p_queues)
                order by l.priority, l.run_at, l.id limit v_room for update skip locked);
            select array_agg(l.id order by l.priority, l.run_at, l.id),
                   array_agg(l.ctid order by l.priority, l.run_at, l.id), count(l.dedupe_key)
            into v_ids, v_rows, v_keys from live l where l.id = any (v_ids || v_more);
        end if;
    end if;
    if v_ids = '{}' or v_ids is null then
        return;
    end if;
    v_token := nextval('claim_token');
    insert into claims (token, worker, claimed_at, heartbeat_at, expires_at, ids)
    values (v_token, p_worker, clock(), clock(), clock() + p_ttl, v_ids);
    if p_asleep then
        delete from sleepers s where s.worker = p_worker;
        if v_room <= 0 then
            perform wake(q) from unnest(p_queues) q;
        end if;
    end if;
    if v_keys > 0 then
        -- A key of scope "queued" is held only until the first start.
        delete from dedupe d where d.scope = 'queued' and d.id = any (v_ids) and d.key = any (array(
            select l.dedupe_key from live l where l.ctid = any (v_rows) and l.dedupe_key is not null));
    end if;
    -- Locked above, so they cannot have moved: by ctid, each is spared an index look-up, and they come back in the order
    -- in which they were found.
    return query
        update live l set token = v_token, claimed_at = clock(), attempt = l.attempt + 1
        from unnest(v_rows) as found(place) where l.ctid = found.place
        returning l.id, l.token, l.task, l.payload, l.attempt, l.max_attempts, l.queue, l.priority, l.tenant, l.run_at,
                  l.created_at, l.dedupe_key;
end $$;


-- Name: clock(); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.clock() RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN now();


-- Name: close_claims(bigint[]); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.close_claims(p_tokens bigint[]) RETURNS void
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
    delete from claims where token in (
        select c.token from claims c
        where c.token = any (p_tokens)
          and not exists (select 1 from live l where l.id = any (c.ids) and l.token = c.token)
        for update skip locked)
$$;


-- Name: discard_dead(uuid[]); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.discard_dead(p_ids uuid[]) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
    return query
        with gone as (
            delete from dead where ctid = any (array(
                select d.ctid from dead d where d.id = any (p_ids) order by d.id for update))
            returning *)
        insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, started_at, finished_at,
                             queue, task, worker, tenant, payload, dedupe_key, last_error)
        select g.id, status, priority, attempt, max_attempts, run_at, created_at, started_at, clock(),
               queue, task, worker, tenant, payload, dedupe_key, last_error
        from gone g returning history.id;
end $$;


-- Name: enqueue(text, jsonb, text, uuid, text, integer, interval, timestamp with time zone, integer, jsonb, text, holdfast.dedupe_scope, interval, text, boolean); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.enqueue(p_task text, p_payload jsonb DEFAULT '{}'::jsonb, p_queue text DEFAULT 'default'::text, p_id uuid DEFAULT NULL::uuid, p_tenant text DEFAULT NULL::text, p_priority integer DEFAULT 2, p_delay interval DEFAULT NULL::interval, p_run_at timestamp with time zone DEFAULT NULL::timestamp with time zone, p_max_attempts integer DEFAULT NULL::integer, p_retry jsonb DEFAULT NULL::jsonb, p_dedupe_key text DEFAULT NULL::text, p_dedupe_scope holdfast.dedupe_scope DEFAULT 'running'::holdfast.dedupe_scope, p_dedupe_keep interval DEFAULT NULL::interval, p_on_conflict text DEFAULT 'existing'::text, p_fresh boolean DEFAULT false, OUT id uuid, OUT outcome text) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
declare
    v_id     uuid := coalesce(p_id, uuid7());
    v_run_at timestamptz := coalesce(p_run_at, clock() + p_delay, clock());
    v_due    boolean := v_run_at <= clock();
    v_max    integer := p_max_attempts;
    v_holder uuid;
    v_taken  boolean;
    v_wake   boolean;
begin
    if v_max is null then
        v_max := coalesce((select t.max_attempts from tasks t where t.name = p_task), 5);
    end if;
    -- The cheap test first: check_job is called to name what is wrong.
    if (length(p_task) between 1 and 200 and length(p_queue) between 1 and 100 and strpos(p_queue, '/') = 0
        and length(coalesce(p_tenant, '-')) between 1 and 200 and p_priority between 0 and 3
        and v_max between 1 and 32000 and jsonb_typeof(p_payload) = 'object'
        and v_run_at between '1970-01-01' and '9999-12-31') is not true then
        perform check_job(p_task, p_queue, p_tenant, p_priority, v_max, p_payload, v_run_at);
    end if;
    if p_id is not null and not p_fresh and current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'an id of your own cannot be enqueued in a % transaction: it could not see whether the job was '
            'accepted and done meanwhile', current_setting('transaction_isolation')
            using errcode = 'invalid_parameter_value', hint = 'use read committed, or let enqueue make the id';
    end if;
    if p_id is not null and not p_fresh and times_accepted(p_id) > 0 then
        enqueue.id := p_id;
        enqueue.outcome := 'existing';
        return;
    end if;
    if p_dedupe_key is not null then
        select k.holder, k.taken into v_holder, v_taken
        from take_dedupe_key(p_dedupe_key, v_id, p_dedupe_scope, p_dedupe_keep) k;
        if v_holder <> v_id then
            enqueue.id := v_holder;
            enqueue.outcome := resolve_duplicate(p_dedupe_key, v_holder, p_payload, p_on_conflict);
            return;
        end if;
    end if;
    if v_due then
        insert into live (id, queue, priority, run_at, created_at, max_attempts, task, tenant, payload, dedupe_key, retry)
        values (v_id, p_queue, p_priority, v_run_at, clock(), v_max, p_task, p_tenant, p_payload::json, p_dedupe_key,
                p_retry)
        on conflict do nothing
        returning exists (select 1 from sleepers s where s.queue = p_queue) into v_wake;
    else
        insert into later (id, queue, priority, lane, run_at, created_at, attempt, max_attempts, task, tenant, payload,
                           dedupe_key, retry)
        values (v_id, p_queue, p_priority, 0, v_run_at, clock(), 0, v_max, p_task, p_tenant, p_payload::json,
                p_dedupe_key, p_retry)
        on conflict do nothing
        -- Sleepers know when the next job comes due, so they must be told when this one is due before it.
        returning not exists (select 1 from later l where l.run_at >= clock() and l.run_at < v_run_at) into v_wake;
    end if;
    enqueue.id := v_id;
    -- Once more, after the insert: it has waited for a finish under way, and now sees where that put the job. The first
    -- look alone would let a job run twice; this one alone would take its key again.
    enqueue.outcome := case when found then 'created' else 'existing' end;
    if found and p_id is not null and not p_fresh and times_accepted(v_id) > 1 then
        enqueue.outcome := 'existing';
        delete from live l where v_due and l.id = v_id;
        delete from later l where not v_due and l.id = v_id;
        delete from dedupe d where v_taken and d.key = p_dedupe_key and d.id = v_id;
    end if;
    if v_wake and enqueue.outcome = 'created' then
        perform wake(p_queue);
    end if;
end $$;


-- Name: enqueue_many(jsonb, text, boolean); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.enqueue_many(p_jobs jsonb, p_on_conflict text DEFAULT 'existing'::text, p_fresh boolean DEFAULT false) RETURNS TABLE(id uuid, outcome text)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    AS $$
begin
    return query
        with given as materialized (
            select j.value as job, j.ordinality as place from jsonb_array_elements(p_jobs) with ordinality j
            order by j.value ->> 'dedupe_key', j.ordinality),
        accepted as materialized (
            select g.place, e.* from given g, lateral enqueue(
                p_task => g.job ->> 'task',
                p_payload => coalesce(g.job -> 'payload', '{}'),
                p_queue => coalesce(g.job ->> 'queue', 'default'),
                p_id => (g.job ->> 'id')::uuid,
                p_tenant => g.job ->> 'tenant',
                p_priority => coalesce((g.job ->> 'priority')::integer, 2),
                p_delay => make_interval(secs => (g.job ->> 'delay')::double precision),
                p_run_at => (g.job ->> 'run_at')::timestamptz,
                p_max_attempts => (g.job ->> 'max_attempts')::integer,
                p_retry => nullif(g.job -> 'retry', 'null'),
                p_dedupe_key => g.job ->> 'dedupe_key',
                p_dedupe_scope => coalesce((g.job ->> 'dedupe_scope')::dedupe_scope, 'running'),
                p_dedupe_keep => make_interval(secs => (g.job ->> 'dedupe_keep')::double precision),
                p_on_conflict => p_on_conflict,
                p_fresh => p_fresh) e)
        select a.id, a.outcome from accepted a order by a.place;
end $$;


-- Name: fail(uuid, bigint, jsonb, interval, text); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.fail(p_id uuid, p_token bigint, p_error jsonb DEFAULT '{}'::jsonb, p_delay interval DEFAULT NULL::interval, p_outcome text DEFAULT 'error'::text) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    AS $$
    select not exists (select 1 from finish('{}', '{}', jsonb_build_array(jsonb_build_object(
        'id', p_id, 'token', p_token, 'outcome', p_outcome, 'error', p_error,
        'delay', extract(epoch from p_delay)))))
$$;


-- Name: finish(uuid[], bigint[], jsonb, bigint[]); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.finish(p_ids uuid[], p_tokens bigint[], p_outcomes jsonb DEFAULT NULL::jsonb, p_closed bigint[] DEFAULT NULL::bigint[]) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
    v_tokens bigint[] := p_tokens || array(
        select (o ->> 'token')::bigint from jsonb_array_elements(coalesce(p_outcomes, '[]')) o);
    v_worker text;
    v_ended  uuid[];
    v_keyed  uuid[];
    v_keys   text[];
    v_moved  uuid[];
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
        -- By ctid, each looked up on its own: a join could be planned for an empty table and then read all of a full
        -- one (decision 011). A row that somebody else changes meanwhile has another ctid, and is refused.
        with ended as (
            delete from live where token = any (p_tokens) and ctid = any (array(
                select l.place from unnest(p_ids, p_tokens) as g(id, token) cross join lateral (
                    select l.ctid as place from live l where l.id = g.id and l.token = g.token offset 0) l))
            returning *),
        kept as (
            insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, started_at,
                                 finished_at, queue, task, worker, tenant, payload, dedupe_key, last_error)
            select id, 'succeeded', priority, attempt, max_attempts, run_at, created_at, claimed_at,
                   clock(), queue, task, v_worker, tenant, payload, dedupe_key, last_error
            from ended returning id, dedupe_key)
        select array_agg(k.id), array_agg(k.id) filter (where k.dedupe_key is not null),
               array_agg(k.dedupe_key) filter (where k.dedupe_key is not null)
        into v_ended, v_keyed, v_keys from kept k;
        if v_keys is not null then
            perform free_dedupe_keys(v_keys, v_keyed, true);
        end if;
    end if;
    if p_outcomes is not null and p_outcomes <> '[]' then
        select array_agg(s.id) into v_moved from settle(p_outcomes, v_worker) as s(id);
    end if;
    if p_closed is null then
        perform close_claims(v_tokens);
    end if;
    if coalesce(cardinality(v_ended), 0) + coalesce(cardinality(v_moved), 0)
       < coalesce(cardinality(p_ids), 0) + jsonb_array_length(coalesce(p_outcomes, '[]')) then
        return query
            (select unnest(p_ids) union all select (o ->> 'id')::uuid from jsonb_array_elements(p_outcomes) o)
            except all (select unnest(v_ended) union all select unnest(v_moved));
    end if;
end $$;


-- Name: free_dedupe_keys(text[], uuid[], boolean); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.free_dedupe_keys(p_keys text[], p_ids uuid[], p_succeeded boolean) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
    if p_succeeded then
        update dedupe d set expires_at = clock() + d.keep
        where d.key = any (p_keys) and d.id = any (p_ids) and d.scope = 'success' and d.keep is not null;
    end if;
    delete from dedupe d
    where d.key = any (p_keys) and d.id = any (p_ids) and not (p_succeeded and d.scope = 'success');
end $$;


-- Name: make_partitions(); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.make_partitions() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET lock_timeout TO '100ms'
    SET "TimeZone" TO 'UTC'
    AS $$
declare
    v_day  date;
    v_name text;
    v_made integer := 0;
    v_rows bigint;
begin
    for v_day in select clock()::date + i
                 from generate_series(0, (select value::integer from settings where name = 'partitions_ahead_days')) i
    loop
        v_name := 'history_' || to_char(v_day, 'YYYYMMDD');
        if to_regclass(quote_ident(current_schema()) || '.' || v_name) is null then
            -- Rows of that day may have gone to the default partition. A few move; of a day that has many the rest goes
            -- there too, until retention removes it: moving them would hold up every worker.
            lock table history_default in access exclusive mode;
            execute format('select count(*) from (select from history_default where finished_at >= %L and finished_at < %L '
                           'limit 10001) few', v_day::timestamptz, (v_day + 1)::timestamptz) into v_rows;
            continue when v_rows > 10000;
            execute format('create table %I (like history including all)', v_name);
            execute format('with moved as (delete from history_default where finished_at >= %L and finished_at < %L '
                           'returning *) insert into %I select * from moved',
                           v_day::timestamptz, (v_day + 1)::timestamptz, v_name);
            execute format('alter table history attach partition %I for values from (%L) to (%L)',
                           v_name, v_day::timestamptz, (v_day + 1)::timestamptz);
            v_made := v_made + 1;
        end if;
    end loop;
    return v_made;
end $$;


-- Name: promote(integer, interval); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.promote(p_limit integer DEFAULT 1000, p_since interval DEFAULT NULL::interval) RETURNS uuid[]
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    v_ids uuid[];
begin
    -- By ctid: a join could be planned for an empty table and then read all of a full one (decision 011).
    with moved as (
        delete from later where ctid = any (array(
            select l.ctid from later l
            where l.run_at <= clock() and l.run_at >= coalesce(clock() - p_since, '-infinity')
            order by l.run_at, l.id limit p_limit
            for update skip locked))
        returning *),
    placed as (
        insert into live (id, queue, priority, lane, run_at, created_at, attempt, max_attempts, task, tenant, payload,
                          dedupe_key, retry, last_error)
        select id, queue, priority, lane, run_at, created_at, attempt, max_attempts, task, tenant, payload,
               dedupe_key, retry, last_error
        from moved on conflict do nothing returning id)
    select array_agg(id) into v_ids from placed;
    return coalesce(v_ids, '{}');
end $$;


-- Name: prune(integer); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.prune(p_limit integer DEFAULT 1000, OUT partitions_dropped integer, OUT rows_removed integer) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET lock_timeout TO '50ms'
    SET "TimeZone" TO 'UTC'
    AS $_$
declare
    v_oldest date := clock()::date - (select value::integer from settings where name = 'history_retention_days');
    v_name   text;
begin
    with expired as (
        select key from dedupe where expires_at <= clock() order by key limit p_limit for update skip locked)
    delete from dedupe d using expired e where d.key = e.key;
    get diagnostics rows_removed = row_count;
    delete from workers where heartbeat_at < clock() - interval '1 hour';
    delete from sleepers s where not exists (
        select 1 from workers w where w.id = s.worker and w.heartbeat_at > clock() - interval '5 minutes');
    delete from history_default where finished_at < v_oldest;
    partitions_dropped := 0;
    for v_name in
        select c.relname from pg_inherits i join pg_class c on c.oid = i.inhrelid
        where i.inhparent = 'history'::regclass and c.relname ~ '^history_\d{8}$'
          and to_date(substring(c.relname from 9), 'YYYYMMDD') < v_oldest
        order by 1
    loop
        begin  -- while somebody reads it, it waits for the next round: finishing must not queue up behind a drop
            execute format('drop table %I', v_name);
            partitions_dropped := partitions_dropped + 1;
        exception when lock_not_available then
            exit;
        end;
    end loop;
end $_$;


-- Name: reclaim(integer); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.reclaim(p_limit integer DEFAULT 20) RETURNS TABLE(token bigint, worker text, expired_at timestamp with time zone, ids uuid[])
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    AS $$
declare
    v_claim claims;
    v_lost  jsonb;
begin
    for v_claim in
        select * from claims c where c.expires_at <= clock() order by c.token limit p_limit for update skip locked
    loop
        select jsonb_agg(jsonb_build_object('id', i, 'token', v_claim.token, 'outcome', 'lost', 'error',
            jsonb_build_object('type', 'LeaseLost', 'code', 'LEASE_LOST', 'message', format(
                'worker %s stopped renewing its lease; it expired at %s', v_claim.worker, v_claim.expires_at))))
        into v_lost from unnest(v_claim.ids) i;
        token := v_claim.token;
        worker := v_claim.worker;
        expired_at := v_claim.expires_at;
        begin  -- one claim that cannot be settled must not keep all others from it
            ids := array(select settle(v_lost, v_claim.worker));
            delete from claims c where c.token = v_claim.token;
            return next;
        exception when others then
            raise warning 'claim % of worker % cannot be reclaimed: %', v_claim.token, v_claim.worker, sqlerrm;
        end;
    end loop;
end $$;


-- Name: register_worker(text, text, integer, text, text[], integer, jsonb); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.register_worker(p_worker text, p_host text, p_pid integer, p_version text, p_queues text[], p_concurrency integer, p_tasks jsonb) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    AS $$
begin
    insert into workers (id, host, pid, version, queues, tasks, concurrency, started_at, heartbeat_at)
    values (p_worker, p_host, p_pid, p_version, p_queues,
            array(select t ->> 'name' from jsonb_array_elements(p_tasks) t order by 1), p_concurrency, clock(), clock())
    on conflict (id) do update set heartbeat_at = clock(), stopping = false;
    insert into tasks as k (name, queue, max_attempts, retry, timeout, updated_at)
    select t.name, t.queue, t.max_attempts, t.retry, make_interval(secs => t.timeout), clock()
    from jsonb_to_recordset(p_tasks)
        as t(name text, queue text, max_attempts smallint, retry jsonb, timeout double precision)
    order by t.name
    on conflict (name) do update
        set queue = excluded.queue, max_attempts = excluded.max_attempts, retry = excluded.retry,
            timeout = excluded.timeout, updated_at = excluded.updated_at
        where (k.queue, k.max_attempts, k.retry, k.timeout)
              is distinct from (excluded.queue, excluded.max_attempts, excluded.retry, excluded.timeout);
end $$;


-- Name: release(uuid[], bigint[]); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.release(p_ids uuid[], p_tokens bigint[]) RETURNS SETOF uuid
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    AS $$
    select finish('{}', '{}', (select coalesce(jsonb_agg(jsonb_build_object(
        'id', g.id, 'token', g.token, 'outcome', 'released')), '[]')
        from unnest(p_ids, p_tokens) as g(id, token)))
$$;


-- Name: renew(text, bigint[], interval); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.renew(p_worker text, p_tokens bigint[], p_ttl interval) RETURNS SETOF bigint
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
begin
    update workers set heartbeat_at = clock() where id = p_worker;
    return query
        update claims c set heartbeat_at = clock(), expires_at = clock() + p_ttl
        from (select token from claims where token = any (p_tokens) order by token for update) mine
        where c.token = mine.token and c.worker = p_worker and c.expires_at > clock()
        returning c.token;
end $$;


-- Name: resolve_duplicate(text, uuid, jsonb, text); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.resolve_duplicate(p_key text, p_holder uuid, p_payload jsonb, p_on_conflict text) RETURNS text
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
begin
    if p_on_conflict = 'raise' then
        raise exception 'job % already holds dedupe key %', p_holder, left(p_key, 200)
            using errcode = 'unique_violation', constraint = 'dedupe_key';
    elsif p_on_conflict = 'replace' then
        update live set payload = p_payload::json
        where id = (select id from live where id = p_holder and token is null for update skip locked);
        if not found then
            update later set payload = p_payload::json
            where id = (select id from later where id = p_holder for update skip locked);
        end if;
        return case when found then 'replaced' else 'existing' end;
    elsif p_on_conflict = 'existing' then
        return 'existing';
    end if;
    raise exception 'on_conflict is existing, replace or raise, got %', p_on_conflict
        using errcode = 'invalid_parameter_value';
end $$;


-- Name: retry_dead(uuid[]); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.retry_dead(p_ids uuid[]) RETURNS SETOF uuid
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
    return query
        with held as materialized (
            select d.ctid as place, d.id, d.dedupe_key, d.dedupe_scope, d.dedupe_keep
            from dead d where d.id = any (p_ids) order by d.id for update),
        free as materialized (
            select h.place from (select * from held order by dedupe_key) h
            where h.dedupe_key is null or (take_dedupe_key(
                h.dedupe_key, h.id, coalesce(h.dedupe_scope, 'queued'), h.dedupe_keep)).holder = h.id),
        gone as (delete from dead where ctid = any (array(select f.place from free f)) returning *),
        placed as (
            insert into live (id, queue, priority, lane, run_at, created_at, max_attempts, task, tenant, payload,
                              dedupe_key, retry, last_error)
            select id, queue, priority, lane, clock(), created_at, max_attempts, task, tenant, payload,
                   dedupe_key, retry, last_error
            from gone returning id, queue),
        woken as (select wake(queue, count(*)) from placed group by queue)
        select p.id from placed p where (select count(*) from woken) >= 0;
end $$;


-- Name: retry_delay(jsonb, integer); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.retry_delay(p_policy jsonb, p_attempt integer) RETURNS interval
    LANGUAGE plpgsql
    AS $$
declare
    v_step    double precision := greatest(p_attempt, 1) - 1;
    v_delays  jsonb := p_policy -> 'delays';
    v_seconds double precision;
begin
    v_seconds := case p_policy ->> 'kind'
        when 'fixed' then (p_policy ->> 'delay')::double precision
        when 'exponential' then (p_policy ->> 'base')::double precision
                                * power((p_policy ->> 'factor')::double precision, least(v_step, 60))
        when 'table' then (v_delays ->> least(v_step, jsonb_array_length(v_delays) - 1)::integer)::double precision
        else 0 end;
    -- Never more than ten years: further off, neither PostgreSQL nor Python can be relied on to say when.
    v_seconds := least(v_seconds, (p_policy ->> 'cap')::double precision, 315360000);
    v_seconds := v_seconds * (1 - coalesce((p_policy ->> 'jitter')::double precision, 0) * random());
    return make_interval(secs => coalesce(greatest(v_seconds, 0), 0));
exception when others then
    return interval '1 minute';
end $$;


-- Name: settle(jsonb, text); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.settle(p_outcomes jsonb, p_worker text) RETURNS SETOF uuid
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_temp'
    SET jit TO 'off'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
begin
    return query
    with given as materialized (
        select * from jsonb_to_recordset(p_outcomes)
            as g(id uuid, token bigint, outcome text, result jsonb, error jsonb, delay double precision)),
    -- Looked up one by one and moved by ctid: a join could be planned for an empty table and then read all of a full one
    -- (decision 011).
    held as materialized (
        select l.*, g.outcome, g.result, g.error, g.delay
        from (select * from given order by id) g cross join lateral (
            select l.ctid as place, l.id, l.task, l.attempt, l.max_attempts, l.retry
            from live l where l.id = g.id and l.token = g.token for update) l),
    decided as materialized (
        select h.place, h.id, h.result, h.error,
            case when h.outcome in ('succeeded', 'canceled', 'failed', 'dead') then h.outcome
                 when h.outcome in ('snoozed', 'released') then 'waits'
                 -- error, lost, and whatever a client may have misspelt: never a way out of every table
                 when h.attempt >= h.max_attempts then 'dead'
                 else 'waits' end as verdict,
            (h.outcome in ('snoozed', 'released'))::integer as refund,
            case when h.outcome = 'released' then interval '0'
                 when h.delay is not null then make_interval(secs => least(greatest(h.delay, 0), 315360000))
                 -- Back at once after a first lost lease. After more, spread at random: what was claimed together
                 -- with a job that kills its worker must not be claimed together with it every time.
                 when h.outcome = 'lost' and h.attempt = 1 then interval '0'
                 else retry_delay(coalesce(h.retry, (select t.retry from tasks t where t.name = h.task)), h.attempt)
                      * case h.outcome when 'lost' then random() else 1 end
            end as delay
        from held h),
    gone as (
        delete from live where ctid = any (array(select d.place from decided d)) returning *),
    moved as materialized (
        select g.*, d.verdict, d.delay, coalesce(d.refund, 0) as refund, d.result,
               coalesce(d.error, g.last_error) as error
        from gone g join decided d on d.id = g.id),
    back as (
        insert into live (id, queue, priority, lane, run_at, created_at, attempt, max_attempts, task, tenant, payload,
                          dedupe_key, retry, last_error)
        select id, queue, priority, lane, run_at, created_at, attempt - refund, max_attempts, task, tenant, payload,
               dedupe_key, retry, error
        from moved where verdict = 'waits' and delay <= interval '0'
        on conflict do nothing returning queue),
    to_later as (
        insert into later (id, queue, priority, lane, run_at, created_at, attempt, max_attempts, task, tenant, payload,
                           dedupe_key, retry, last_error)
        select id, queue, priority, lane, clock() + delay, created_at, attempt - refund, max_attempts, task, tenant,
               payload, dedupe_key, retry, error
        from moved where verdict = 'waits' and delay > interval '0'
        on conflict do nothing),
    to_dead as (
        insert into dead (id, status, queue, priority, lane, run_at, created_at, started_at, finished_at, attempt,
                          max_attempts, worker, task, tenant, payload, dedupe_key, retry, last_error, dedupe_scope,
                          dedupe_keep)
        select id, verdict::job_status, queue, priority, lane, run_at, created_at, claimed_at, clock(), attempt,
               max_attempts, p_worker, task, tenant, payload, dedupe_key, retry, error,
               -- Kept for the day a person retries it: the key itself is given up now.
               (select k.scope from dedupe k where k.key = m.dedupe_key and k.id = m.id),
               (select k.keep from dedupe k where k.key = m.dedupe_key and k.id = m.id)
        from moved m where verdict in ('failed', 'dead')
        on conflict do nothing),
    to_history as (
        insert into history (id, status, priority, attempt, max_attempts, run_at, created_at, started_at, finished_at,
                             queue, task, worker, tenant, payload, result, dedupe_key, last_error)
        select id, verdict::job_status, priority, attempt, max_attempts, run_at, created_at, claimed_at, clock(),
               queue, task, p_worker, tenant, payload, result, dedupe_key, error
        from moved where verdict in ('succeeded', 'canceled')),
    freed as (
        select free_dedupe_keys(array_agg(dedupe_key), array_agg(id), verdict = 'succeeded')
        from moved where dedupe_key is not null and verdict <> 'waits' group by verdict = 'succeeded'),
    woken as (select wake(queue, count(*)) from back group by queue)
    select d.id from decided d
    where (select count(*) from freed) >= 0 and (select count(*) from woken) >= 0;
end $$;


-- Name: sleep(text, text[]); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.sleep(p_worker text, p_queues text[]) RETURNS double precision
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
begin
    insert into sleepers (queue, worker) select q, p_worker from unnest(p_queues) q on conflict do nothing;
    -- Not what was due long ago: it has been promoted, and its index entries may still be in the way.
    return (select extract(epoch from min(run_at) - clock()) from later where run_at >= clock() - interval '10 seconds');
end $$;


-- Name: snooze(uuid, bigint, interval); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.snooze(p_id uuid, p_token bigint, p_delay interval) RETURNS boolean
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    AS $$
    select not exists (select 1 from finish('{}', '{}', jsonb_build_array(jsonb_build_object(
        'id', p_id, 'token', p_token, 'outcome', 'snoozed', 'delay', extract(epoch from p_delay)))))
$$;


-- Name: take_dedupe_key(text, uuid, holdfast.dedupe_scope, interval); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.take_dedupe_key(p_key text, p_id uuid, p_scope holdfast.dedupe_scope, p_keep interval, OUT holder uuid, OUT taken boolean) RETURNS record
    LANGUAGE plpgsql
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    SET enable_bitmapscan TO 'off'
    AS $$
declare
    v_keep interval := case when p_keep > interval '100 years' then interval '100 years' else p_keep end;
begin
    loop
        insert into dedupe (key, id, scope, keep) values (p_key, p_id, p_scope, v_keep)
        on conflict do nothing;
        taken := found;
        if taken then
            holder := p_id;
            return;
        end if;
        delete from dedupe where key = p_key and expires_at <= clock();
        select id into holder from dedupe where key = p_key;
        if found then
            return;
        end if;
    end loop;
end $$;


-- Name: take_lead(text, text, interval); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.take_lead(p_chore text, p_worker text, p_ttl interval) RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    AS $$
    insert into leader as l (chore, worker, term, expires_at)
    values (p_chore, p_worker, 1, clock() + p_ttl)
    on conflict (chore) do update
        set worker = p_worker, expires_at = clock() + p_ttl,
            term = l.term + (l.worker <> p_worker or l.expires_at <= clock())::integer
        where l.worker = p_worker or l.expires_at <= clock()
    returning term
$$;


-- Name: times_accepted(uuid); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.times_accepted(p_id uuid) RETURNS bigint
    LANGUAGE sql
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
    select count(*) from (
        select from live where id = p_id
        union all select from later where id = p_id
        union all select from dead where id = p_id
        union all select from history where id = p_id) places
$$;


-- Name: unregister_worker(text, boolean); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.unregister_worker(p_worker text, p_gone boolean DEFAULT true) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    AS $$
begin
    delete from sleepers where worker = p_worker;
    if p_gone then
        delete from workers where id = p_worker;
        update leader set expires_at = clock() where worker = p_worker;
    else
        update workers set stopping = true where id = p_worker;
    end if;
end $$;


-- Name: upkeep(text, interval); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.upkeep(p_worker text, p_ttl interval, OUT term bigint, OUT promoted integer, OUT reclaimed jsonb) RETURNS record
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    SET enable_seqscan TO 'off'
    AS $$
declare
    v_ids uuid[];
begin
    term := take_lead('upkeep', p_worker, p_ttl);
    promoted := 0;
    reclaimed := '[]';
    if term is not null then
        v_ids := promote(1000);
        promoted := cardinality(v_ids);
        perform wake(l.queue, count(*)) from live l where l.id = any (v_ids) group by l.queue;
        select coalesce(jsonb_agg(jsonb_build_object('worker', r.worker, 'jobs', cardinality(r.ids))), '[]')
        into reclaimed from reclaim() r;
    end if;
end $$;


-- Name: uuid7(); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.uuid7() RETURNS uuid
    LANGUAGE sql
    RETURN (encode(set_bit(set_bit(OVERLAY(uuid_send(gen_random_uuid()) PLACING SUBSTRING(int8send(((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric))::bigint) FROM 3) FROM 1 FOR 6), (52)::bigint, 1), (53)::bigint, 1), 'hex'::text))::uuid;


-- Name: wake(text, bigint); Type: FUNCTION; Schema: holdfast; Owner: -

CREATE FUNCTION holdfast.wake(p_queue text, p_jobs bigint DEFAULT 1) RETURNS void
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'holdfast', 'pg_temp'
    AS $$
begin
    perform pg_notify(current_schema() || '_wake', s.worker)
    from (select worker from sleepers where queue = p_queue order by random() limit least(p_jobs, 8) + 1) s;
end $$;


-- Name: claim_token; Type: SEQUENCE; Schema: holdfast; Owner: -

CREATE SEQUENCE holdfast.claim_token
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


-- Name: claims; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.claims (
    token bigint NOT NULL,
    worker text NOT NULL,
    claimed_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    ids uuid[] NOT NULL
)
WITH (fillfactor='50');


-- Name: dead; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.dead (
    id uuid NOT NULL,
    status holdfast.job_status NOT NULL,
    queue holdfast.queue_name NOT NULL,
    priority holdfast.priority_level NOT NULL,
    lane bigint NOT NULL,
    run_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    attempt smallint NOT NULL,
    max_attempts holdfast.attempt_limit NOT NULL,
    worker text,
    task holdfast.task_name NOT NULL,
    tenant holdfast.tenant_name,
    payload json NOT NULL,
    dedupe_key text,
    dedupe_scope holdfast.dedupe_scope,
    dedupe_keep interval,
    retry jsonb,
    last_error jsonb,
    CONSTRAINT dead_status_check CHECK ((status = ANY (ARRAY['failed'::holdfast.job_status, 'dead'::holdfast.job_status])))
);


-- Name: dedupe; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.dedupe (
    key text NOT NULL,
    id uuid NOT NULL,
    scope holdfast.dedupe_scope NOT NULL,
    keep interval,
    expires_at timestamp with time zone
);


-- Name: history; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.history (
    id uuid NOT NULL,
    status holdfast.job_status NOT NULL,
    priority holdfast.priority_level NOT NULL,
    attempt smallint NOT NULL,
    max_attempts holdfast.attempt_limit NOT NULL,
    run_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    queue holdfast.queue_name NOT NULL,
    task holdfast.task_name NOT NULL,
    worker text,
    tenant holdfast.tenant_name,
    payload json NOT NULL,
    result jsonb,
    dedupe_key text,
    last_error jsonb,
    CONSTRAINT history_status_check CHECK ((status = ANY (ARRAY['succeeded'::holdfast.job_status, 'failed'::holdfast.job_status, 'dead'::holdfast.job_status, 'canceled'::holdfast.job_status])))
)
PARTITION BY RANGE (finished_at);


-- Name: history_default; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.history_default (
    id uuid CONSTRAINT history_id_not_null NOT NULL,
    status holdfast.job_status CONSTRAINT history_status_not_null NOT NULL,
    priority holdfast.priority_level CONSTRAINT history_priority_not_null NOT NULL,
    attempt smallint CONSTRAINT history_attempt_not_null NOT NULL,
    max_attempts holdfast.attempt_limit CONSTRAINT history_max_attempts_not_null NOT NULL,
    run_at timestamp with time zone CONSTRAINT history_run_at_not_null NOT NULL,
    created_at timestamp with time zone CONSTRAINT history_created_at_not_null NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone CONSTRAINT history_finished_at_not_null NOT NULL,
    queue holdfast.queue_name CONSTRAINT history_queue_not_null NOT NULL,
    task holdfast.task_name CONSTRAINT history_task_not_null NOT NULL,
    worker text,
    tenant holdfast.tenant_name,
    payload json CONSTRAINT history_payload_not_null NOT NULL,
    result jsonb,
    dedupe_key text,
    last_error jsonb,
    CONSTRAINT history_status_check CHECK ((status = ANY (ARRAY['succeeded'::holdfast.job_status, 'failed'::holdfast.job_status, 'dead'::holdfast.job_status, 'canceled'::holdfast.job_status])))
);


-- Name: later; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.later (
    id uuid NOT NULL,
    queue holdfast.queue_name NOT NULL,
    priority holdfast.priority_level NOT NULL,
    lane bigint NOT NULL,
    run_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    attempt smallint NOT NULL,
    max_attempts holdfast.attempt_limit NOT NULL,
    task holdfast.task_name NOT NULL,
    tenant holdfast.tenant_name,
    payload json NOT NULL,
    dedupe_key text,
    retry jsonb,
    last_error jsonb,
    CONSTRAINT later_is_sound CHECK (((attempt >= 0) AND (attempt <= (max_attempts)::smallint)))
);


-- Name: live; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.live (
    id uuid NOT NULL,
    queue holdfast.queue_name DEFAULT 'default'::text NOT NULL,
    priority holdfast.priority_level DEFAULT 2 NOT NULL,
    lane bigint DEFAULT 0 NOT NULL,
    run_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    token bigint,
    claimed_at timestamp with time zone,
    attempt smallint DEFAULT 0 NOT NULL,
    max_attempts holdfast.attempt_limit DEFAULT 5 NOT NULL,
    task holdfast.task_name NOT NULL,
    tenant holdfast.tenant_name,
    payload json DEFAULT '{}'::json NOT NULL,
    dedupe_key text,
    retry jsonb,
    last_error jsonb,
    CONSTRAINT live_is_sound CHECK ((((attempt >= 0) AND (attempt <= (max_attempts)::smallint)) AND ((token IS NULL) = (claimed_at IS NULL)) AND ((token IS NULL) OR (attempt > 0))))
)
WITH (fillfactor='45', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0.2', autovacuum_analyze_threshold='5000');


-- Name: jobs; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.jobs AS
 SELECT l.id,
    l.task,
    l.tenant,
    l.queue,
    l.priority,
    l.payload,
        CASE
            WHEN (l.token IS NOT NULL) THEN 'running'::holdfast.job_status
            WHEN ((l.attempt > 0) OR (l.last_error IS NOT NULL)) THEN 'retrying'::holdfast.job_status
            ELSE 'queued'::holdfast.job_status
        END AS status,
    l.attempt AS attempts,
    l.max_attempts,
    l.run_at,
    l.last_error,
    l.created_at,
    l.claimed_at AS started_at,
    NULL::timestamp with time zone AS finished_at,
    NULL::jsonb AS result,
    l.dedupe_key,
    ( SELECT c.worker
           FROM holdfast.claims c
          WHERE (c.token = l.token)) AS locked_by,
    ( SELECT c.claimed_at
           FROM holdfast.claims c
          WHERE (c.token = l.token)) AS locked_at,
    ( SELECT c.heartbeat_at
           FROM holdfast.claims c
          WHERE (c.token = l.token)) AS heartbeat_at,
    ( SELECT c.expires_at
           FROM holdfast.claims c
          WHERE (c.token = l.token)) AS lease_expires_at,
    l.token
   FROM holdfast.live l
UNION ALL
 SELECT later.id,
    later.task,
    later.tenant,
    later.queue,
    later.priority,
    later.payload,
        CASE
            WHEN ((later.attempt > 0) OR (later.last_error IS NOT NULL)) THEN 'retrying'::holdfast.job_status
            ELSE 'queued'::holdfast.job_status
        END AS status,
    later.attempt AS attempts,
    later.max_attempts,
    later.run_at,
    later.last_error,
    later.created_at,
    NULL::timestamp with time zone AS started_at,
    NULL::timestamp with time zone AS finished_at,
    NULL::jsonb AS result,
    later.dedupe_key,
    NULL::text AS locked_by,
    NULL::timestamp with time zone AS locked_at,
    NULL::timestamp with time zone AS heartbeat_at,
    NULL::timestamp with time zone AS lease_expires_at,
    NULL::bigint AS token
   FROM holdfast.later
UNION ALL
 SELECT dead.id,
    dead.task,
    dead.tenant,
    dead.queue,
    dead.priority,
    dead.payload,
    dead.status,
    dead.attempt AS attempts,
    dead.max_attempts,
    dead.run_at,
    dead.last_error,
    dead.created_at,
    dead.started_at,
    dead.finished_at,
    NULL::jsonb AS result,
    dead.dedupe_key,
    dead.worker AS locked_by,
    NULL::timestamp with time zone AS locked_at,
    NULL::timestamp with time zone AS heartbeat_at,
    NULL::timestamp with time zone AS lease_expires_at,
    NULL::bigint AS token
   FROM holdfast.dead
UNION ALL
 SELECT history.id,
    history.task,
    history.tenant,
    history.queue,
    history.priority,
    history.payload,
    history.status,
    history.attempt AS attempts,
    history.max_attempts,
    history.run_at,
    history.last_error,
    history.created_at,
    history.started_at,
    history.finished_at,
    history.result,
    history.dedupe_key,
    history.worker AS locked_by,
    NULL::timestamp with time zone AS locked_at,
    NULL::timestamp with time zone AS heartbeat_at,
    NULL::timestamp with time zone AS lease_expires_at,
    NULL::bigint AS token
   FROM holdfast.history;


-- Name: leader; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.leader (
    chore text NOT NULL,
    worker text NOT NULL,
    term bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL
);


-- Name: queue_depth; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.queue_depth AS
 SELECT queue,
    count(*) FILTER (WHERE ((place = 'live'::text) AND (NOT claimed))) AS ready,
    count(*) FILTER (WHERE claimed) AS running,
    count(*) FILTER (WHERE (place = 'later'::text)) AS later,
    count(*) FILTER (WHERE (place = 'dead'::text)) AS dead,
    max((holdfast.clock() - run_at)) FILTER (WHERE ((place = 'live'::text) AND (NOT claimed))) AS oldest_wait
   FROM ( SELECT live.queue,
            'live'::text AS place,
            (live.token IS NOT NULL) AS claimed,
            live.run_at
           FROM holdfast.live
        UNION ALL
         SELECT later.queue,
            'later'::text,
            false,
            later.run_at
           FROM holdfast.later
        UNION ALL
         SELECT dead.queue,
            'dead'::text,
            false,
            dead.run_at
           FROM holdfast.dead) j
  GROUP BY queue;


-- Name: schema_files; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.schema_files (
    name text NOT NULL,
    checksum text NOT NULL
);


-- Name: schema_info; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.schema_info (
    version integer NOT NULL,
    applied_at timestamp with time zone NOT NULL
);


-- Name: settings; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.settings (
    name text NOT NULL,
    value jsonb NOT NULL
);


-- Name: sleepers; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.sleepers (
    queue text NOT NULL,
    worker text NOT NULL
)
WITH (fillfactor='50');


-- Name: stuck_jobs; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.stuck_jobs AS
 SELECT id,
    task,
    tenant,
    queue,
    attempts,
    locked_by,
    heartbeat_at,
    (holdfast.clock() - heartbeat_at) AS time_since_heartbeat
   FROM holdfast.jobs
  WHERE ((status = 'running'::holdfast.job_status) AND (lease_expires_at < holdfast.clock()));


-- Name: tasks; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.tasks (
    name text NOT NULL,
    queue holdfast.queue_name NOT NULL,
    max_attempts holdfast.attempt_limit NOT NULL,
    retry jsonb NOT NULL,
    timeout interval,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);


-- Name: workers; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.workers (
    id text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    queues text[] NOT NULL,
    tasks text[] NOT NULL,
    concurrency integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    heartbeat_at timestamp with time zone NOT NULL,
    stopping boolean DEFAULT false NOT NULL
)
WITH (fillfactor='50');


-- Name: history_default; Type: TABLE ATTACH; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.history ATTACH PARTITION holdfast.history_default DEFAULT;


-- Name: claims claims_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (token);


-- Name: dead dead_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.dead
    ADD CONSTRAINT dead_pkey PRIMARY KEY (id);


-- Name: dedupe dedupe_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.dedupe
    ADD CONSTRAINT dedupe_pkey PRIMARY KEY (key);


-- Name: later later_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.later
    ADD CONSTRAINT later_pkey PRIMARY KEY (id);


-- Name: leader leader_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.leader
    ADD CONSTRAINT leader_pkey PRIMARY KEY (chore);


-- Name: live live_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.live
    ADD CONSTRAINT live_pkey PRIMARY KEY (id);


-- Name: schema_files schema_files_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.schema_files
    ADD CONSTRAINT schema_files_pkey PRIMARY KEY (name);


-- Name: schema_info schema_info_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.schema_info
    ADD CONSTRAINT schema_info_pkey PRIMARY KEY (version);


-- Name: settings settings_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (name);


-- Name: sleepers sleepers_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.sleepers
    ADD CONSTRAINT sleepers_pkey PRIMARY KEY (queue, worker);


-- Name: tasks tasks_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (name);


-- Name: workers workers_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);


-- Name: dead_by_time; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX dead_by_time ON holdfast.dead USING btree (finished_at DESC, id);


-- Name: dedupe_expiring; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX dedupe_expiring ON holdfast.dedupe USING btree (expires_at) WHERE (expires_at IS NOT NULL);


-- Name: history_by_id; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX history_by_id ON ONLY holdfast.history USING btree (id);


-- Name: history_default_id_idx; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX history_default_id_idx ON holdfast.history_default USING btree (id);


-- Name: later_due; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX later_due ON holdfast.later USING btree (run_at, id);


-- Name: live_fetch; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX live_fetch ON holdfast.live USING btree (queue, priority, lane, run_at, id);


-- Name: history_default_id_idx; Type: INDEX ATTACH; Schema: holdfast; Owner: -

ALTER INDEX holdfast.history_by_id ATTACH PARTITION holdfast.history_default_id_idx;


-- Name: SCHEMA holdfast; Type: ACL; Schema: -; Owner: -

GRANT USAGE ON SCHEMA holdfast TO holdfast_enqueue;
GRANT USAGE ON SCHEMA holdfast TO holdfast_worker;
GRANT USAGE ON SCHEMA holdfast TO holdfast_reader;
GRANT USAGE ON SCHEMA holdfast TO holdfast_admin;


-- Name: FUNCTION cancel(p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.cancel(p_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.cancel(p_ids uuid[]) TO holdfast_admin;


-- Name: FUNCTION cancel_waiting(p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.cancel_waiting(p_ids uuid[]) FROM PUBLIC;


-- Name: FUNCTION check_job(p_task text, p_queue text, p_tenant text, p_priority integer, p_max_attempts integer, p_payload jsonb, p_run_at timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.check_job(p_task text, p_queue text, p_tenant text, p_priority integer, p_max_attempts integer, p_payload jsonb, p_run_at timestamp with time zone) FROM PUBLIC;


-- Name: FUNCTION claim(p_worker text, p_queues text[], p_limit integer, p_ttl interval, p_after jsonb, p_asleep boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.claim(p_worker text, p_queues text[], p_limit integer, p_ttl interval, p_after jsonb, p_asleep boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.claim(p_worker text, p_queues text[], p_limit integer, p_ttl interval, p_after jsonb, p_asleep boolean) TO holdfast_worker;


-- Name: FUNCTION clock(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.clock() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.clock() TO holdfast_reader;


-- Name: FUNCTION close_claims(p_tokens bigint[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.close_claims(p_tokens bigint[]) FROM PUBLIC;


-- Name: FUNCTION discard_dead(p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.discard_dead(p_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.discard_dead(p_ids uuid[]) TO holdfast_admin;


-- Name: FUNCTION enqueue(p_task text, p_payload jsonb, p_queue text, p_id uuid, p_tenant text, p_priority integer, p_delay interval, p_run_at timestamp with time zone, p_max_attempts integer, p_retry jsonb, p_dedupe_key text, p_dedupe_scope holdfast.dedupe_scope, p_dedupe_keep interval, p_on_conflict text, p_fresh boolean, OUT id uuid, OUT outcome text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.enqueue(p_task text, p_payload jsonb, p_queue text, p_id uuid, p_tenant text, p_priority integer, p_delay interval, p_run_at timestamp with time zone, p_max_attempts integer, p_retry jsonb, p_dedupe_key text, p_dedupe_scope holdfast.dedupe_scope, p_dedupe_keep interval, p_on_conflict text, p_fresh boolean, OUT id uuid, OUT outcome text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.enqueue(p_task text, p_payload jsonb, p_queue text, p_id uuid, p_tenant text, p_priority integer, p_delay interval, p_run_at timestamp with time zone, p_max_attempts integer, p_retry jsonb, p_dedupe_key text, p_dedupe_scope holdfast.dedupe_scope, p_dedupe_keep interval, p_on_conflict text, p_fresh boolean, OUT id uuid, OUT outcome text) TO holdfast_enqueue;


-- Name: FUNCTION enqueue_many(p_jobs jsonb, p_on_conflict text, p_fresh boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.enqueue_many(p_jobs jsonb, p_on_conflict text, p_fresh boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.enqueue_many(p_jobs jsonb, p_on_conflict text, p_fresh boolean) TO holdfast_enqueue;


-- Name: FUNCTION fail(p_id uuid, p_token bigint, p_error jsonb, p_delay interval, p_outcome text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.fail(p_id uuid, p_token bigint, p_error jsonb, p_delay interval, p_outcome text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.fail(p_id uuid, p_token bigint, p_error jsonb, p_delay interval, p_outcome text) TO holdfast_worker;


-- Name: FUNCTION finish(p_ids uuid[], p_tokens bigint[], p_outcomes jsonb, p_closed bigint[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.finish(p_ids uuid[], p_tokens bigint[], p_outcomes jsonb, p_closed bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.finish(p_ids uuid[], p_tokens bigint[], p_outcomes jsonb, p_closed bigint[]) TO holdfast_worker;


-- Name: FUNCTION free_dedupe_keys(p_keys text[], p_ids uuid[], p_succeeded boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.free_dedupe_keys(p_keys text[], p_ids uuid[], p_succeeded boolean) FROM PUBLIC;


-- Name: FUNCTION make_partitions(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.make_partitions() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.make_partitions() TO holdfast_worker;


-- Name: FUNCTION promote(p_limit integer, p_since interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.promote(p_limit integer, p_since interval) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.promote(p_limit integer, p_since interval) TO holdfast_worker;


-- Name: FUNCTION prune(p_limit integer, OUT partitions_dropped integer, OUT rows_removed integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.prune(p_limit integer, OUT partitions_dropped integer, OUT rows_removed integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.prune(p_limit integer, OUT partitions_dropped integer, OUT rows_removed integer) TO holdfast_worker;


-- Name: FUNCTION reclaim(p_limit integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.reclaim(p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.reclaim(p_limit integer) TO holdfast_worker;


-- Name: FUNCTION register_worker(p_worker text, p_host text, p_pid integer, p_version text, p_queues text[], p_concurrency integer, p_tasks jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.register_worker(p_worker text, p_host text, p_pid integer, p_version text, p_queues text[], p_concurrency integer, p_tasks jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.register_worker(p_worker text, p_host text, p_pid integer, p_version text, p_queues text[], p_concurrency integer, p_tasks jsonb) TO holdfast_worker;


-- Name: FUNCTION release(p_ids uuid[], p_tokens bigint[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.release(p_ids uuid[], p_tokens bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.release(p_ids uuid[], p_tokens bigint[]) TO holdfast_worker;


-- Name: FUNCTION renew(p_worker text, p_tokens bigint[], p_ttl interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.renew(p_worker text, p_tokens bigint[], p_ttl interval) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.renew(p_worker text, p_tokens bigint[], p_ttl interval) TO holdfast_worker;


-- Name: FUNCTION resolve_duplicate(p_key text, p_holder uuid, p_payload jsonb, p_on_conflict text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.resolve_duplicate(p_key text, p_holder uuid, p_payload jsonb, p_on_conflict text) FROM PUBLIC;


-- Name: FUNCTION retry_dead(p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.retry_dead(p_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.retry_dead(p_ids uuid[]) TO holdfast_admin;


-- Name: FUNCTION retry_delay(p_policy jsonb, p_attempt integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.retry_delay(p_policy jsonb, p_attempt integer) FROM PUBLIC;


-- Name: FUNCTION settle(p_outcomes jsonb, p_worker text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.settle(p_outcomes jsonb, p_worker text) FROM PUBLIC;


-- Name: FUNCTION sleep(p_worker text, p_queues text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.sleep(p_worker text, p_queues text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.sleep(p_worker text, p_queues text[]) TO holdfast_worker;


-- Name: FUNCTION snooze(p_id uuid, p_token bigint, p_delay interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.snooze(p_id uuid, p_token bigint, p_delay interval) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.snooze(p_id uuid, p_token bigint, p_delay interval) TO holdfast_worker;


-- Name: FUNCTION take_dedupe_key(p_key text, p_id uuid, p_scope holdfast.dedupe_scope, p_keep interval, OUT holder uuid, OUT taken boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.take_dedupe_key(p_key text, p_id uuid, p_scope holdfast.dedupe_scope, p_keep interval, OUT holder uuid, OUT taken boolean) FROM PUBLIC;


-- Name: FUNCTION take_lead(p_chore text, p_worker text, p_ttl interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.take_lead(p_chore text, p_worker text, p_ttl interval) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.take_lead(p_chore text, p_worker text, p_ttl interval) TO holdfast_worker;


-- Name: FUNCTION times_accepted(p_id uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.times_accepted(p_id uuid) FROM PUBLIC;


-- Name: FUNCTION unregister_worker(p_worker text, p_gone boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.unregister_worker(p_worker text, p_gone boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.unregister_worker(p_worker text, p_gone boolean) TO holdfast_worker;


-- Name: FUNCTION upkeep(p_worker text, p_ttl interval, OUT term bigint, OUT promoted integer, OUT reclaimed jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.upkeep(p_worker text, p_ttl interval, OUT term bigint, OUT promoted integer, OUT reclaimed jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.upkeep(p_worker text, p_ttl interval, OUT term bigint, OUT promoted integer, OUT reclaimed jsonb) TO holdfast_worker;


-- Name: FUNCTION uuid7(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.uuid7() FROM PUBLIC;


-- Name: FUNCTION wake(p_queue text, p_jobs bigint); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.wake(p_queue text, p_jobs bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.wake(p_queue text, p_jobs bigint) TO holdfast_enqueue;


-- Name: TABLE claims; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.claims TO holdfast_reader;


-- Name: TABLE dead; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.dead TO holdfast_reader;


-- Name: TABLE dedupe; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.dedupe TO holdfast_reader;


-- Name: TABLE history; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.history TO holdfast_reader;


-- Name: TABLE history_default; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.history_default TO holdfast_reader;


-- Name: TABLE later; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.later TO holdfast_reader;


-- Name: TABLE live; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.live TO holdfast_reader;


-- Name: COLUMN live.id; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(id) ON TABLE holdfast.live TO holdfast_enqueue;


-- Name: COLUMN live.queue; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(queue) ON TABLE holdfast.live TO holdfast_enqueue;


-- Name: COLUMN live.priority; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(priority) ON TABLE holdfast.live TO holdfast_enqueue;


-- Name: COLUMN live.max_attempts; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(max_attempts) ON TABLE holdfast.live TO holdfast_enqueue;


-- Name: COLUMN live.task; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(task) ON TABLE holdfast.live TO holdfast_enqueue;


-- Name: COLUMN live.tenant; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(tenant) ON TABLE holdfast.live TO holdfast_enqueue;


-- Name: COLUMN live.payload; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(payload) ON TABLE holdfast.live TO holdfast_enqueue;


-- Name: COLUMN live.retry; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(retry) ON TABLE holdfast.live TO holdfast_enqueue;


-- Name: TABLE jobs; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.jobs TO holdfast_reader;


-- Name: TABLE leader; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.leader TO holdfast_reader;


-- Name: TABLE queue_depth; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.queue_depth TO holdfast_reader;


-- Name: TABLE schema_files; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.schema_files TO holdfast_reader;


-- Name: TABLE schema_info; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.schema_info TO holdfast_enqueue;
GRANT SELECT ON TABLE holdfast.schema_info TO holdfast_worker;
GRANT SELECT ON TABLE holdfast.schema_info TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.schema_info TO holdfast_admin;


-- Name: TABLE settings; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.settings TO holdfast_reader;
GRANT INSERT,UPDATE ON TABLE holdfast.settings TO holdfast_admin;


-- Name: TABLE sleepers; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.sleepers TO holdfast_enqueue;
GRANT SELECT ON TABLE holdfast.sleepers TO holdfast_reader;


-- Name: TABLE stuck_jobs; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.stuck_jobs TO holdfast_reader;


-- Name: TABLE tasks; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.tasks TO holdfast_reader;


-- Name: TABLE workers; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.workers TO holdfast_reader;


-- PostgreSQL database dump complete
