-- The schema as PostgreSQL 18 dumps it, without history's daily partitions and without functions: those are
-- applied from src/holdfast/sql/functions whenever they change. Made by `make schema`.

-- PostgreSQL database dump


-- Name: holdfast; Type: SCHEMA; Schema: -; Owner: -

CREATE SCHEMA holdfast;


-- Name: attempt_limit; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.attempt_limit AS smallint
	CONSTRAINT attempt_limit_check CHECK (((VALUE >= 1) AND (VALUE <= 32000)));


-- Name: breaker_change; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.breaker_change AS (
	key text,
	event text,
	failures integer,
	open_until timestamp with time zone
);


-- Name: claim_state; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.claim_state AS (
	token bigint,
	most integer,
	free integer,
	repeats boolean,
	only_direct boolean,
	per_tenant integer,
	cursors jsonb,
	tenants boolean,
	weights boolean,
	tasks text[],
	version bigint,
	queue_key text,
	served jsonb,
	places tid[],
	ids uuid[],
	direct uuid[],
	deduped integer,
	held text[],
	closed integer,
	moved boolean,
	more boolean,
	cut boolean
);


-- Name: counted; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.counted AS (
	queue text,
	task text,
	wait smallint,
	ended bigint,
	failed bigint,
	lost bigint,
	run_seconds double precision
);


-- Name: dedupe_scope; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.dedupe_scope AS ENUM (
    'queued',
    'running',
    'success'
);


-- Name: failed; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.failed AS (
	fingerprint text,
	task text,
	type text,
	code text,
	message text,
	frame text,
	attempts bigint,
	dead bigint,
	job uuid,
	at timestamp with time zone
);


-- Name: failed_attempt; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.failed_attempt AS (
	attempt smallint,
	started_at timestamp with time zone,
	ended_at timestamp with time zone,
	worker text,
	outcome text,
	type text,
	message text,
	code text,
	frame text,
	fingerprint text
);


-- Name: freed; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.freed AS (
	id uuid,
	keys text[],
	went integer,
	counts text[]
);


-- Name: job_status; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.job_status AS ENUM (
    'queued',
    'running',
    'retrying',
    'waiting',
    'succeeded',
    'failed',
    'dead',
    'canceled'
);


-- Name: job_filter; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.job_filter AS (
	status holdfast.job_status[],
	task text,
	queue text,
	tenant text,
	batch uuid,
	error text,
	since timestamp with time zone,
	until timestamp with time zone,
	finished_since timestamp with time zone,
	finished_until timestamp with time zone,
	args jsonb,
	error_group text
);


-- Name: limit_keys; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.limit_keys AS text[]
	CONSTRAINT limit_keys_check CHECK (holdfast.fit_keys(VALUE));


-- Name: missed_policy; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.missed_policy AS ENUM (
    'skip',
    'once',
    'all'
);


-- Name: priority_level; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.priority_level AS smallint
	CONSTRAINT priority_level_check CHECK (((VALUE >= 0) AND (VALUE <= 3)));


-- Name: queue_name; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.queue_name AS text
	CONSTRAINT queue_name_check CHECK (((VALUE <> ''::text) AND ((octet_length(VALUE) <= 100) OR (length(VALUE) <= 100)) AND (strpos(VALUE, '/'::text) = 0) AND (strpos(VALUE, ','::text) = 0) AND (VALUE = btrim(VALUE, '


'::text))));


-- Name: readable_json; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.readable_json AS json
	CONSTRAINT readable_json_check CHECK (((strpos((VALUE)::text, '\'::text) = 0) OR (strpos((VALUE)::text, '\u'::text) = 0) OR ((VALUE)::jsonb IS NOT NULL)));


-- Name: released; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.released AS (
	key text,
	jobs integer,
	good integer,
	bad integer,
	probe smallint
);


-- Name: task_name; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.task_name AS text
	CONSTRAINT task_name_check CHECK (((VALUE <> ''::text) AND ((octet_length(VALUE) <= 200) OR (length(VALUE) <= 200))));


-- Name: tenant_name; Type: DOMAIN; Schema: holdfast; Owner: -

CREATE DOMAIN holdfast.tenant_name AS text
	CONSTRAINT tenant_name_check CHECK (((VALUE <> ''::text) AND ((octet_length(VALUE) <= 200) OR (length(VALUE) <= 200))));


-- Name: used; Type: TYPE; Schema: holdfast; Owner: -

CREATE TYPE holdfast.used AS (
	tenant text,
	task text,
	runs bigint,
	failures bigint,
	run_seconds double precision,
	queue_seconds double precision
);


-- Name: actions; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.actions (
    id uuid NOT NULL,
    kind text NOT NULL,
    target text,
    by text NOT NULL,
    reason text,
    params jsonb DEFAULT '{}'::jsonb NOT NULL,
    before jsonb,
    state text DEFAULT 'done'::text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    filter jsonb,
    ids uuid[],
    view_tenant holdfast.tenant_name,
    deliveries boolean DEFAULT true NOT NULL,
    preview integer,
    examples uuid[],
    last_id uuid,
    place_id uuid,
    scanned bigint DEFAULT 0 NOT NULL,
    matched bigint DEFAULT 0 NOT NULL,
    changed bigint DEFAULT 0 NOT NULL,
    skipped bigint DEFAULT 0 NOT NULL,
    locked uuid[] DEFAULT '{}'::uuid[] NOT NULL,
    worked_at timestamp with time zone,
    error text,
    CONSTRAINT actions_end CHECK (((state = 'running'::text) = (finished_at IS NULL))),
    CONSTRAINT actions_kind_check CHECK (((length(kind) >= 1) AND (length(kind) <= 60))),
    CONSTRAINT actions_state_check CHECK ((state = ANY (ARRAY['running'::text, 'done'::text, 'aborted'::text, 'failed'::text])))
)
WITH (fillfactor='50');


-- Name: webhook_endpoints; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.webhook_endpoints (
    id uuid NOT NULL,
    tenant holdfast.tenant_name,
    url text NOT NULL,
    events text[],
    prefix text DEFAULT 'Holdfast'::text NOT NULL,
    timeout double precision DEFAULT 30 NOT NULL,
    dev boolean DEFAULT false NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    disabled_reason text,
    description text,
    secrets jsonb NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT webhook_endpoints_prefix_check CHECK ((prefix ~ '^[A-Za-z0-9-]{1,40}$'::text)),
    CONSTRAINT webhook_endpoints_secrets_check CHECK ((jsonb_array_length(secrets) > 0)),
    CONSTRAINT webhook_endpoints_timeout_check CHECK (((timeout > (0)::double precision) AND (timeout <= (300)::double precision))),
    CONSTRAINT webhook_endpoints_url_check CHECK (((length(url) >= 1) AND (length(url) <= 2000)))
);


-- Name: steps; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.steps (
    job uuid NOT NULL,
    name text NOT NULL,
    number bigint NOT NULL,
    kind text NOT NULL,
    tenant text,
    ref uuid,
    result holdfast.readable_json,
    detail jsonb,
    undo jsonb,
    undo_job uuid,
    attempt smallint,
    timed_out boolean,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    due_at timestamp with time zone,
    check_at timestamp with time zone,
    CONSTRAINT steps_kind_check CHECK ((kind = ANY (ARRAY['step'::text, 'sleep'::text, 'signal'::text, 'batch'::text, 'call'::text]))),
    CONSTRAINT steps_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200)))
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='5000');


-- Name: claim_number; Type: SEQUENCE; Schema: holdfast; Owner: -

CREATE SEQUENCE holdfast.claim_number
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    MAXVALUE 1023
    CACHE 1
    CYCLE;


-- Name: api_tokens; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.api_tokens (
    id uuid NOT NULL,
    name text NOT NULL,
    digest bytea NOT NULL,
    shown text NOT NULL,
    tenant holdfast.tenant_name,
    scopes text[] NOT NULL,
    priority smallint DEFAULT 0 NOT NULL,
    rate double precision,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    CONSTRAINT api_tokens_digest_check CHECK ((length(digest) = 32)),
    CONSTRAINT api_tokens_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
    CONSTRAINT api_tokens_priority_check CHECK (((priority >= 0) AND (priority <= 3))),
    CONSTRAINT api_tokens_rate_check CHECK ((rate > (0)::double precision)),
    CONSTRAINT api_tokens_scopes_check CHECK ((cardinality(scopes) > 0)),
    CONSTRAINT api_tokens_shown_check CHECK (((length(shown) >= 1) AND (length(shown) <= 20)))
)
WITH (fillfactor='70');


-- Name: arrivals; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.arrivals (
    queue text NOT NULL,
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    priority smallint NOT NULL,
    lane bigint NOT NULL,
    run_at timestamp with time zone NOT NULL,
    tenant text,
    keys text[]
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='5000');


-- Name: attempt_counts; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.attempt_counts (
    minute timestamp with time zone NOT NULL,
    queue text NOT NULL,
    task text NOT NULL,
    wait smallint NOT NULL,
    backend integer NOT NULL,
    ended bigint NOT NULL,
    failed bigint NOT NULL,
    lost bigint NOT NULL,
    run_seconds double precision NOT NULL
)
WITH (fillfactor='50');


-- Name: audit; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.audit AS
 SELECT id,
    started_at AS at,
    by,
    kind,
    target,
    reason,
    before,
    params AS after,
    filter,
    state,
    preview,
    matched,
    changed,
    skipped,
    finished_at,
    error,
    view_tenant AS tenant
   FROM holdfast.actions;


-- Name: batch_counts; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.batch_counts (
    batch uuid NOT NULL,
    backend integer NOT NULL,
    added bigint DEFAULT 0 NOT NULL,
    succeeded bigint DEFAULT 0 NOT NULL,
    failed bigint DEFAULT 0 NOT NULL,
    canceled bigint DEFAULT 0 NOT NULL,
    first_at timestamp with time zone,
    counted_at timestamp with time zone
)
WITH (fillfactor='50');


-- Name: batches; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.batches (
    id uuid NOT NULL,
    name text NOT NULL,
    tenant holdfast.tenant_name,
    open boolean NOT NULL,
    canceled boolean DEFAULT false NOT NULL,
    on_done jsonb,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT batches_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200)))
);


-- Name: batch_progress; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.batch_progress AS
 SELECT b.id,
    b.name,
    b.tenant,
        CASE
            WHEN (b.finished_at IS NULL) THEN
            CASE
                WHEN (c.processed > 0) THEN 'running'::text
                ELSE 'queued'::text
            END
            WHEN b.canceled THEN 'canceled'::text
            WHEN (c.failed > 0) THEN 'failed'::text
            ELSE 'succeeded'::text
        END AS status,
    c.total,
    c.processed,
    c.succeeded,
    c.failed,
    c.canceled,
    b.open,
    b.created_at,
    c.started_at,
    b.finished_at,
    ((b.on_done ->> 'id'::text))::uuid AS callback
   FROM (holdfast.batches b
     CROSS JOIN LATERAL ( SELECT (COALESCE(sum(k.added), (0)::numeric))::bigint AS total,
            (COALESCE(sum(((k.succeeded + k.failed) + k.canceled)), (0)::numeric))::bigint AS processed,
            (COALESCE(sum(k.succeeded), (0)::numeric))::bigint AS succeeded,
            (COALESCE(sum(k.failed), (0)::numeric))::bigint AS failed,
            (COALESCE(sum(k.canceled), (0)::numeric))::bigint AS canceled,
            min(k.first_at) AS started_at
           FROM holdfast.batch_counts k
          WHERE (k.batch = b.id)) c);


-- Name: blocks; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.blocks (
    key text NOT NULL,
    reason text,
    count bigint NOT NULL,
    first_seen timestamp with time zone NOT NULL,
    last_seen timestamp with time zone NOT NULL,
    last_job uuid NOT NULL
);


-- Name: breaker_events; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.breaker_events (
    key text NOT NULL COLLATE pg_catalog."C",
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    event text NOT NULL,
    failures integer NOT NULL,
    open_until timestamp with time zone,
    by text,
    reason text,
    CONSTRAINT breaker_events_event_check CHECK ((event = ANY (ARRAY['opened'::text, 'reopened'::text, 'closed'::text, 'reset'::text])))
);


-- Name: breaker_events_id_seq; Type: SEQUENCE; Schema: holdfast; Owner: -

ALTER TABLE holdfast.breaker_events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.breaker_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


-- Name: cancels; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.cancels (
    id uuid NOT NULL,
    token bigint NOT NULL,
    requested_at timestamp with time zone NOT NULL
);


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
ALTER TABLE ONLY holdfast.claims ALTER COLUMN ids SET STORAGE EXTERNAL;


-- Name: cursor_keys; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.cursor_keys (
    key text NOT NULL,
    CONSTRAINT cursor_keys_key_check CHECK ((length(key) >= 64))
);


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
    payload holdfast.readable_json NOT NULL,
    dedupe_key text,
    dedupe_scope holdfast.dedupe_scope,
    dedupe_keep interval,
    retry jsonb,
    last_error jsonb,
    batch uuid,
    headers json,
    keys holdfast.limit_keys,
    failures holdfast.failed_attempt[],
    fingerprint text COLLATE pg_catalog."C",
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


-- Name: endings; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.endings (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    job uuid NOT NULL,
    status text NOT NULL,
    durable boolean NOT NULL,
    followed boolean NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='1000');


-- Name: error_arrivals; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.error_arrivals (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    failed holdfast.failed[] NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='5000');


-- Name: error_counts; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.error_counts (
    fingerprint text NOT NULL COLLATE pg_catalog."C",
    hour timestamp with time zone NOT NULL,
    attempts bigint NOT NULL
)
WITH (fillfactor='50');


-- Name: error_groups; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.error_groups (
    fingerprint text NOT NULL COLLATE pg_catalog."C",
    task text NOT NULL,
    type text,
    code text,
    message text,
    frame text,
    attempts bigint DEFAULT 0 NOT NULL,
    dead bigint DEFAULT 0 NOT NULL,
    first_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone NOT NULL,
    example_job uuid,
    example jsonb,
    example_at timestamp with time zone
)
WITH (fillfactor='50');


-- Name: errors; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.errors AS
 SELECT g.fingerprint,
    g.task,
    g.type,
    g.code,
    g.message,
    g.frame,
    g.attempts,
    g.dead,
    g.first_at,
    g.last_at,
    g.example_job,
    g.example,
    COALESCE(c.trend, '{}'::jsonb) AS trend
   FROM (holdfast.error_groups g
     LEFT JOIN LATERAL ( SELECT jsonb_object_agg(to_char((c_1.hour AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD"T"HH24:MI:SS"Z"'::text), c_1.attempts ORDER BY c_1.hour) AS trend
           FROM holdfast.error_counts c_1
          WHERE (c_1.fingerprint = g.fingerprint)) c ON (true));


-- Name: flows; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.flows (
    queue text NOT NULL,
    priority smallint NOT NULL,
    direct boolean NOT NULL,
    flow bigint NOT NULL,
    tag bigint NOT NULL,
    credit integer DEFAULT 0 NOT NULL,
    lane bigint DEFAULT 0 NOT NULL,
    open boolean NOT NULL,
    barren boolean DEFAULT false NOT NULL,
    tenant text
)
WITH (fillfactor='60', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='1000');


-- Name: folds; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.folds (
    queue text NOT NULL,
    from_xid xid8 NOT NULL,
    open_xids xid8[] NOT NULL,
    token bigint NOT NULL
)
WITH (fillfactor='50');


-- Name: follows; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.follows (
    job uuid NOT NULL,
    follower uuid NOT NULL,
    on_failure text NOT NULL,
    CONSTRAINT follows_on_failure_check CHECK ((on_failure = ANY (ARRAY['cancel'::text, 'skip'::text, 'run'::text, 'hold'::text])))
);


-- Name: leader; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.leader (
    chore text NOT NULL,
    worker text NOT NULL,
    term bigint NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    look_again_at timestamp with time zone,
    batch uuid
)
WITH (fillfactor='50');


-- Name: limit_settings; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.limit_settings (
    key text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    override jsonb DEFAULT '{}'::jsonb NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    paused_until timestamp with time zone,
    paused_at timestamp with time zone,
    paused_by text,
    paused_reason text,
    concurrency integer GENERATED ALWAYS AS (((override ->> 'concurrency'::text))::integer) STORED,
    rate double precision GENERATED ALWAYS AS (((override ->> 'rate'::text))::double precision) STORED,
    per double precision GENERATED ALWAYS AS (((override ->> 'per'::text))::double precision) STORED,
    burst double precision GENERATED ALWAYS AS (((override ->> 'burst'::text))::double precision) STORED,
    breaker_after integer GENERATED ALWAYS AS (((override ->> 'breaker_after'::text))::integer) STORED,
    breaker_pause double precision GENERATED ALWAYS AS (((override ->> 'breaker_pause'::text))::double precision) STORED,
    breaker_cap double precision GENERATED ALWAYS AS (((override ->> 'breaker_cap'::text))::double precision) STORED,
    weight double precision GENERATED ALWAYS AS (((override ->> 'weight'::text))::double precision) STORED,
    CONSTRAINT limit_settings_key_check CHECK (((length(key) >= 1) AND (length(key) <= 300)))
);


-- Name: minutes; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.minutes (
    minute timestamp with time zone NOT NULL,
    queue text NOT NULL,
    ended bigint NOT NULL,
    failed bigint NOT NULL,
    lost bigint NOT NULL,
    run_seconds double precision NOT NULL,
    p50 double precision,
    p95 double precision,
    p99 double precision,
    ready bigint,
    running bigint,
    later bigint,
    dead bigint
);


-- Name: settings; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.settings (
    name text NOT NULL,
    value jsonb NOT NULL
);


-- Name: snapshots; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.snapshots (
    at timestamp with time zone NOT NULL,
    figures jsonb NOT NULL
);


-- Name: ticks; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.ticks (
    id uuid NOT NULL,
    worker text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    claimed integer NOT NULL,
    processed integer NOT NULL,
    succeeded integer NOT NULL,
    failed integer NOT NULL,
    throttled integer NOT NULL,
    contention integer NOT NULL,
    depth bigint NOT NULL,
    tenants jsonb NOT NULL,
    kind text DEFAULT 'tick'::text NOT NULL,
    depth_at_start bigint,
    CONSTRAINT ticks_kind_check CHECK ((kind = ANY (ARRAY['tick'::text, 'window'::text])))
);


-- Name: worker_tick_metrics; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.worker_tick_metrics AS
 SELECT id,
    worker AS worker_id,
    kind,
    started_at AS tick_started_at,
    ended_at AS tick_ended_at,
    (round((EXTRACT(epoch FROM (ended_at - started_at)) * (1000)::numeric)))::bigint AS tick_duration_ms,
    claimed AS jobs_claimed,
    processed AS jobs_processed,
    succeeded AS jobs_succeeded,
    failed AS jobs_failed,
    throttled AS jobs_throttled,
    contention AS lock_contention_count,
    tenants AS tenant_jobs,
    depth_at_start AS queue_depth_at_start,
    depth AS queue_depth_at_end
   FROM holdfast.ticks;


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


-- Name: health_levels; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.health_levels AS
 WITH recent AS (
         SELECT worker_tick_metrics.id,
            worker_tick_metrics.worker_id,
            worker_tick_metrics.kind,
            worker_tick_metrics.tick_started_at,
            worker_tick_metrics.tick_ended_at,
            worker_tick_metrics.tick_duration_ms,
            worker_tick_metrics.jobs_claimed,
            worker_tick_metrics.jobs_processed,
            worker_tick_metrics.jobs_succeeded,
            worker_tick_metrics.jobs_failed,
            worker_tick_metrics.jobs_throttled,
            worker_tick_metrics.lock_contention_count,
            worker_tick_metrics.tenant_jobs,
            worker_tick_metrics.queue_depth_at_start,
            worker_tick_metrics.queue_depth_at_end
           FROM holdfast.worker_tick_metrics
          WHERE ((worker_tick_metrics.tick_ended_at > (holdfast.clock() - '00:05:00'::interval)) AND (worker_tick_metrics.tick_started_at > (holdfast.clock() - '1 day'::interval)))
        ), latest AS (
         SELECT s.figures
           FROM holdfast.snapshots s
          ORDER BY s.at DESC
         LIMIT 1
        ), waits AS (
         SELECT q.queue,
            (q.oldest_wait / COALESCE(( SELECT ((s.value ->> q.queue))::double precision AS float8
                   FROM holdfast.settings s
                  WHERE (s.name = 'wait_targets'::text)), ( SELECT (s.value)::double precision AS value
                   FROM holdfast.settings s
                  WHERE (s.name = 'wait_target'::text)))) AS value
           FROM (latest l
             CROSS JOIN LATERAL jsonb_to_recordset((l.figures -> 'queues'::text)) q(queue text, oldest_wait double precision))
          WHERE (NOT (EXISTS ( SELECT 1
                   FROM holdfast.limit_settings p
                  WHERE ((p.key = ('queue:'::text || q.queue)) AND p.paused AND ((p.paused_until IS NULL) OR (p.paused_until > holdfast.clock()))))))
        ), attempts AS (
         SELECT sum(a.ended) AS ended,
            sum(a.failed) AS failed,
            sum(a.lost) AS lost
           FROM ( SELECT m.ended,
                    m.failed,
                    m.lost
                   FROM holdfast.minutes m
                  WHERE ((m.minute > (holdfast.clock() - '00:05:00'::interval)) AND (m.minute < date_trunc('minute'::text, (holdfast.clock() - '00:01:00'::interval))))
                UNION ALL
                 SELECT c.ended,
                    c.failed,
                    c.lost
                   FROM holdfast.attempt_counts c
                  WHERE (c.minute >= date_trunc('minute'::text, (holdfast.clock() - '00:01:00'::interval)))) a
        ), figures(metric, value) AS (
         SELECT 'wait_over_target'::text AS "?column?",
            max(w.value) AS max
           FROM waits w
        UNION ALL
         SELECT 'failing_share'::text,
                CASE
                    WHEN (a.ended >= (20)::numeric) THEN (a.failed / a.ended)
                    ELSE NULL::numeric
                END AS "case"
           FROM attempts a
        UNION ALL
         SELECT 'leases_lost'::text,
            a.lost
           FROM attempts a
        UNION ALL
         SELECT 'upkeep_late'::text,
            ( SELECT GREATEST(EXTRACT(epoch FROM (holdfast.clock() - l.expires_at)), (0)::numeric) AS "greatest"
                   FROM holdfast.leader l
                  WHERE ((l.chore = 'upkeep'::text) AND (EXISTS ( SELECT 1
                           FROM holdfast.workers)))) AS "greatest"
        UNION ALL
         SELECT 'tick_duration'::text,
            ((max(recent.tick_duration_ms) FILTER (WHERE (recent.kind = 'tick'::text)))::numeric / 1000.0)
           FROM recent
        UNION ALL
         SELECT 'lock_contentions'::text,
            max(recent.lock_contention_count) FILTER (WHERE (recent.kind = 'tick'::text)) AS max
           FROM recent
        UNION ALL
         SELECT 'jobs_per_tick'::text,
            max(recent.jobs_claimed) FILTER (WHERE (recent.kind = 'tick'::text)) AS max
           FROM recent
        UNION ALL
         SELECT 'queue_depth'::text,
            max(last.depth) AS max
           FROM ( SELECT DISTINCT ON (recent.worker_id) recent.queue_depth_at_end AS depth
                   FROM recent
                  ORDER BY recent.worker_id, recent.tick_ended_at DESC) last
        )
 SELECT f.metric,
    f.value,
    holdfast.level_of(f.metric, f.value) AS level,
    (((t.value -> f.metric) ->> 'warning'::text))::double precision AS warning,
    (((t.value -> f.metric) ->> 'critical'::text))::double precision AS critical
   FROM (figures f
     LEFT JOIN holdfast.settings t ON ((t.name = 'thresholds'::text)));


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
    payload holdfast.readable_json NOT NULL,
    result jsonb,
    dedupe_key text,
    last_error jsonb,
    batch uuid,
    failures holdfast.failed_attempt[],
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
    payload holdfast.readable_json CONSTRAINT history_payload_not_null NOT NULL,
    result jsonb,
    dedupe_key text,
    last_error jsonb,
    batch uuid,
    failures holdfast.failed_attempt[],
    CONSTRAINT history_status_check CHECK ((status = ANY (ARRAY['succeeded'::holdfast.job_status, 'failed'::holdfast.job_status, 'dead'::holdfast.job_status, 'canceled'::holdfast.job_status])))
);


-- Name: job_logs; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.job_logs (
    id uuid NOT NULL,
    token bigint NOT NULL,
    attempt smallint NOT NULL,
    started_at timestamp with time zone NOT NULL,
    last_line integer NOT NULL,
    lines jsonb NOT NULL,
    updated_at timestamp with time zone NOT NULL
);


-- Name: later; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.later (
    id uuid CONSTRAINT live_id_not_null NOT NULL,
    queue holdfast.queue_name CONSTRAINT live_queue_not_null NOT NULL,
    priority holdfast.priority_level CONSTRAINT live_priority_not_null NOT NULL,
    lane bigint CONSTRAINT live_lane_not_null NOT NULL,
    run_at timestamp with time zone CONSTRAINT live_run_at_not_null NOT NULL,
    created_at timestamp with time zone CONSTRAINT live_created_at_not_null NOT NULL,
    token bigint,
    claimed_at timestamp with time zone,
    attempt smallint CONSTRAINT live_attempt_not_null NOT NULL,
    max_attempts holdfast.attempt_limit CONSTRAINT live_max_attempts_not_null NOT NULL,
    task holdfast.task_name CONSTRAINT live_task_not_null NOT NULL,
    tenant holdfast.tenant_name,
    payload holdfast.readable_json CONSTRAINT live_payload_not_null NOT NULL,
    dedupe_key text,
    retry jsonb,
    last_error jsonb,
    deadline timestamp with time zone,
    batch uuid,
    headers json,
    keys holdfast.limit_keys,
    held text[],
    failures holdfast.failed_attempt[],
    durable boolean,
    followed boolean,
    waits_for text,
    CONSTRAINT later_is_unclaimed CHECK ((token IS NULL)),
    CONSTRAINT live_has_a_lane CHECK (((lane <> 0) OR ((tenant IS NULL) AND (keys IS NULL)))),
    CONSTRAINT live_is_sound CHECK ((((attempt >= 0) AND (attempt <= (max_attempts)::smallint)) AND ((token IS NULL) = (claimed_at IS NULL)) AND ((token IS NULL) OR (attempt > 0))))
);


-- Name: live; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.live (
    id uuid NOT NULL,
    queue holdfast.queue_name DEFAULT 'default'::text NOT NULL,
    priority holdfast.priority_level DEFAULT 2 NOT NULL,
    lane bigint DEFAULT 0 NOT NULL,
    run_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    created_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL,
    token bigint,
    claimed_at timestamp with time zone,
    attempt smallint DEFAULT 0 NOT NULL,
    max_attempts holdfast.attempt_limit DEFAULT 5 NOT NULL,
    task holdfast.task_name NOT NULL,
    tenant holdfast.tenant_name,
    payload holdfast.readable_json DEFAULT '{}'::json NOT NULL,
    dedupe_key text,
    retry jsonb,
    last_error jsonb,
    deadline timestamp with time zone,
    batch uuid,
    headers json,
    keys holdfast.limit_keys,
    held text[],
    failures holdfast.failed_attempt[],
    durable boolean,
    followed boolean,
    waits_for text,
    CONSTRAINT live_has_a_lane CHECK (((lane <> 0) OR ((tenant IS NULL) AND (keys IS NULL)))),
    CONSTRAINT live_is_sound CHECK ((((attempt >= 0) AND (attempt <= (max_attempts)::smallint)) AND ((token IS NULL) = (claimed_at IS NULL)) AND ((token IS NULL) OR (attempt > 0))))
)
WITH (fillfactor='45', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='5000', autovacuum_analyze_scale_factor='0.2', autovacuum_analyze_threshold='5000');


-- Name: progress; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.progress (
    id uuid NOT NULL,
    done double precision NOT NULL,
    total double precision,
    message text,
    updated_at timestamp with time zone NOT NULL
);


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
    l.token,
    l.batch,
    l.deadline,
    ( SELECT (to_jsonb(p.*) - 'id'::text)
           FROM holdfast.progress p
          WHERE (p.id = l.id)) AS progress,
    to_jsonb(l.failures) AS failures,
    ((l.last_error ->> 'fingerprint'::text) COLLATE "C") AS fingerprint,
    'live'::text AS place,
    NULL::text AS waits_for
   FROM holdfast.live l
UNION ALL
 SELECT later.id,
    later.task,
    later.tenant,
    later.queue,
    later.priority,
    later.payload,
        CASE
            WHEN (later.waits_for IS NOT NULL) THEN ('waiting'::text)::holdfast.job_status
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
    NULL::bigint AS token,
    later.batch,
    later.deadline,
    ( SELECT (to_jsonb(p.*) - 'id'::text)
           FROM holdfast.progress p
          WHERE (p.id = later.id)) AS progress,
    to_jsonb(later.failures) AS failures,
    ((later.last_error ->> 'fingerprint'::text) COLLATE "C") AS fingerprint,
    'later'::text AS place,
    later.waits_for
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
    NULL::bigint AS token,
    dead.batch,
    NULL::timestamp with time zone AS deadline,
    ( SELECT (to_jsonb(p.*) - 'id'::text)
           FROM holdfast.progress p
          WHERE (p.id = dead.id)) AS progress,
    to_jsonb(dead.failures) AS failures,
    dead.fingerprint,
    'dead'::text AS place,
    NULL::text AS waits_for
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
    NULL::bigint AS token,
    history.batch,
    NULL::timestamp with time zone AS deadline,
    ( SELECT (to_jsonb(p.*) - 'id'::text)
           FROM holdfast.progress p
          WHERE (p.id = history.id)) AS progress,
    to_jsonb(history.failures) AS failures,
    ((history.last_error ->> 'fingerprint'::text) COLLATE "C") AS fingerprint,
    'history'::text AS place,
    NULL::text AS waits_for
   FROM holdfast.history;


-- Name: kept_orders; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.kept_orders (
    key text NOT NULL COLLATE pg_catalog."C",
    id uuid NOT NULL
);


-- Name: lanes; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.lanes (
    queue text NOT NULL,
    priority smallint NOT NULL,
    lane bigint NOT NULL,
    flow bigint NOT NULL,
    direct boolean DEFAULT false NOT NULL,
    ordered boolean DEFAULT false NOT NULL,
    open boolean NOT NULL,
    closed_by text COLLATE pg_catalog."C",
    closed_at bigint,
    mark_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    mark_id uuid DEFAULT '00000000-0000-0000-0000-000000000000'::uuid NOT NULL,
    tenant text,
    keys text[]
)
WITH (fillfactor='60', autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='1000');


-- Name: limits; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.limits (
    key text NOT NULL COLLATE pg_catalog."C",
    kind text DEFAULT 'key'::text NOT NULL,
    template text,
    version bigint DEFAULT 0 NOT NULL,
    running integer DEFAULT 0 NOT NULL,
    tokens double precision,
    tokens_at timestamp with time zone,
    failure_streak integer DEFAULT 0 NOT NULL,
    last_success_at timestamp with time zone,
    last_failure_at timestamp with time zone,
    open_until timestamp with time zone,
    opens integer DEFAULT 0 NOT NULL,
    probe uuid,
    opens_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT limits_key_check CHECK (((length(key) >= 1) AND (length(key) <= 300)))
)
WITH (fillfactor='40', autovacuum_vacuum_scale_factor='0.1', autovacuum_vacuum_threshold='1000');


-- Name: releases; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.releases (
    xid xid8 DEFAULT pg_current_xact_id() NOT NULL,
    id bigint NOT NULL,
    ended holdfast.released[] NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0.05', autovacuum_vacuum_threshold='5000');


-- Name: limit_drift; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.limit_drift AS
 SELECT key,
    counted,
    actual
   FROM ( SELECT u.key,
            sum(u.counted) AS counted,
            sum(u.actual) AS actual
           FROM ( SELECT m.key,
                    m.running AS counted,
                    0 AS actual
                   FROM holdfast.limits m
                  WHERE (m.running <> 0)
                UNION ALL
                 SELECT o.key,
                    (- o.jobs),
                    0
                   FROM (holdfast.releases r
                     CROSS JOIN LATERAL unnest(r.ended) o(key, jobs, good, bad, probe))
                  WHERE (o.jobs <> 0)
                UNION ALL
                 SELECT o.key,
                    0,
                    1
                   FROM holdfast.kept_orders o
                  WHERE (( SELECT l.token
                           FROM holdfast.live l
                          WHERE (l.id = o.id)) IS NULL)
                UNION ALL
                 SELECT k.key,
                    0,
                    1
                   FROM (holdfast.claimed_jobs() c(id, task, queue, tenant, keys, worker, claimed_at, expires_at)
                     CROSS JOIN LATERAL unnest(c.keys) k(key))) u
          GROUP BY u.key) s
  WHERE (counted <> actual)
  ORDER BY key;


-- Name: rule_version; Type: SEQUENCE; Schema: holdfast; Owner: -

CREATE SEQUENCE holdfast.rule_version
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


-- Name: limit_rules; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.limit_rules (
    template text NOT NULL,
    pattern text NOT NULL,
    code jsonb NOT NULL,
    override jsonb DEFAULT '{}'::jsonb NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    version bigint DEFAULT nextval('holdfast.rule_version'::regclass) NOT NULL,
    concurrency integer GENERATED ALWAYS AS ((((code || override) ->> 'concurrency'::text))::integer) STORED,
    rate double precision GENERATED ALWAYS AS ((((code || override) ->> 'rate'::text))::double precision) STORED,
    per double precision GENERATED ALWAYS AS ((((code || override) ->> 'per'::text))::double precision) STORED,
    burst double precision GENERATED ALWAYS AS ((((code || override) ->> 'burst'::text))::double precision) STORED,
    breaker_after integer GENERATED ALWAYS AS ((((code || override) ->> 'breaker_after'::text))::integer) STORED,
    breaker_pause double precision GENERATED ALWAYS AS ((((code || override) ->> 'breaker_pause'::text))::double precision) STORED,
    breaker_cap double precision GENERATED ALWAYS AS ((((code || override) ->> 'breaker_cap'::text))::double precision) STORED
);


-- Name: limit_state; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.limit_state AS
 SELECT m.key,
    m.kind,
    r.template,
    e.concurrency,
    e.rate,
    e.per,
    e.burst,
    e.breaker_after,
    e.breaker_pause,
    e.breaker_cap,
    m.running,
    m.failure_streak,
    m.last_success_at,
    m.last_failure_at,
    b.open_until,
    m.opens,
    m.probe,
    m.created_at,
    s.override,
    s.weight,
    p.paused,
    s.paused_until,
    s.paused_at,
    s.paused_by,
    s.paused_reason,
    t.free_tokens,
        CASE
            WHEN p.paused THEN 0
            ELSE GREATEST(0, LEAST((e.concurrency - m.running), (floor(LEAST((t.free_tokens + (0.000000001)::double precision), (2147483647)::double precision)))::integer,
            CASE
                WHEN (b.open_until IS NULL) THEN 2147483647
                WHEN ((b.open_until > holdfast.clock()) OR (m.probe IS NOT NULL)) THEN 0
                ELSE 1
            END))
        END AS room,
        CASE
            WHEN ((p.paused AND (s.paused_until IS NULL)) OR (m.running >= e.concurrency) OR ((m.probe IS NOT NULL) AND (b.open_until <= holdfast.clock()))) THEN NULL::double precision
            ELSE GREATEST((0)::double precision,
            CASE
                WHEN p.paused THEN date_part('epoch'::text, (s.paused_until - holdfast.clock()))
                ELSE NULL::double precision
            END, date_part('epoch'::text, (b.open_until - holdfast.clock())), ((((1)::double precision - t.free_tokens) * e.per) / e.rate))
        END AS wait,
    ((e.rate IS NOT NULL) OR (e.breaker_after IS NOT NULL)) AS direct,
    ((e.concurrency IS NOT NULL) OR (e.rate IS NOT NULL) OR (e.breaker_after IS NOT NULL) OR p.paused) AS says
   FROM ((((((holdfast.limits m
     LEFT JOIN holdfast.limit_settings s ON ((s.key = m.key)))
     LEFT JOIN holdfast.limit_rules r ON ((r.template =
        CASE
            WHEN (m.version = ( SELECT COALESCE(max(v.version), (0)::bigint) AS "coalesce"
               FROM holdfast.limit_rules v)) THEN m.template
            ELSE holdfast.rule_of(m.key)
        END)))
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (m.kind = 'order'::text) THEN 1
                    ELSE COALESCE(s.concurrency, r.concurrency)
                END AS concurrency,
            COALESCE(s.rate, r.rate) AS rate,
            COALESCE(s.per, r.per) AS per,
            COALESCE(s.burst, r.burst) AS burst,
            COALESCE(s.breaker_after, r.breaker_after) AS breaker_after,
            COALESCE(s.breaker_pause, r.breaker_pause) AS breaker_pause,
            COALESCE(s.breaker_cap, r.breaker_cap) AS breaker_cap) e)
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (e.breaker_after IS NOT NULL) THEN m.open_until
                    ELSE NULL::timestamp with time zone
                END AS open_until) b)
     CROSS JOIN LATERAL ( SELECT COALESCE((s.paused AND ((s.paused_until IS NULL) OR (s.paused_until > holdfast.clock()))), false) AS paused) p)
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (e.rate IS NOT NULL) THEN LEAST(e.burst, COALESCE((m.tokens + ((GREATEST(date_part('epoch'::text, (holdfast.clock() - m.tokens_at)), (0)::double precision) * e.rate) / e.per)), e.burst))
                    ELSE NULL::double precision
                END AS free_tokens) t);


-- Name: throttled; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.throttled (
    key text NOT NULL,
    tenant text NOT NULL,
    count bigint NOT NULL,
    last_at timestamp with time zone NOT NULL
);


-- Name: limit_use; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.limit_use AS
 SELECT m.key,
    m.kind,
    m.template,
    m.concurrency,
    ((m.running - COALESCE(r.jobs, (0)::bigint)))::integer AS running,
    m.rate,
    m.per,
    m.burst,
    m.free_tokens AS tokens,
    ((GREATEST(((1)::double precision - m.free_tokens), (0)::double precision) * m.per) / m.rate) AS next_token,
    m.paused,
    m.paused_at,
    m.paused_until,
    m.paused_by,
    m.paused_reason,
        CASE
            WHEN (m.breaker_after IS NULL) THEN NULL::text
            WHEN (b.open_until > holdfast.clock()) THEN 'open'::text
            WHEN (b.open_until IS NOT NULL) THEN 'half-open'::text
            ELSE 'closed'::text
        END AS breaker,
    b.open_until,
    b.probe,
    b.failure_streak,
    m.last_success_at,
    m.last_failure_at,
    m.breaker_after,
    m.breaker_pause,
    m.breaker_cap,
    (( SELECT COALESCE(sum(t.count), (0)::numeric) AS "coalesce"
           FROM holdfast.throttled t
          WHERE (t.key = m.key)))::bigint AS throttled,
    m.weight,
    (COALESCE(m.override, '{}'::jsonb) - '{by,at}'::text[]) AS override,
    (m.override ->> 'by'::text) AS changed_by,
    ((m.override ->> 'at'::text))::timestamp with time zone AS changed_at
   FROM ((holdfast.limit_state m
     LEFT JOIN ( SELECT r_1.key,
            sum(r_1.jobs) AS jobs,
            bool_or((r_1.probe = 2)) AS resets
           FROM (holdfast.releases p
             CROSS JOIN LATERAL unnest(p.ended) r_1(key, jobs, good, bad, probe))
          GROUP BY r_1.key) r ON ((r.key = m.key)))
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (r.resets IS NOT TRUE) THEN m.open_until
                    ELSE NULL::timestamp with time zone
                END AS open_until,
                CASE
                    WHEN (r.resets IS NOT TRUE) THEN m.probe
                    ELSE NULL::uuid
                END AS probe,
                CASE
                    WHEN r.resets THEN 0
                    ELSE m.failure_streak
                END AS failure_streak) b)
UNION ALL
 SELECT s.key,
    s.kind,
    r.template,
    e.concurrency,
    0 AS running,
    e.rate,
    e.per,
    e.burst,
    e.burst AS tokens,
    0 AS next_token,
    (s.paused AND ((s.paused_until IS NULL) OR (s.paused_until > holdfast.clock()))) AS paused,
    s.paused_at,
    s.paused_until,
    s.paused_by,
    s.paused_reason,
        CASE
            WHEN (e.breaker_after IS NOT NULL) THEN 'closed'::text
            ELSE NULL::text
        END AS breaker,
    NULL::timestamp with time zone AS open_until,
    NULL::uuid AS probe,
    0 AS failure_streak,
    NULL::timestamp with time zone AS last_success_at,
    NULL::timestamp with time zone AS last_failure_at,
    e.breaker_after,
    e.breaker_pause,
    e.breaker_cap,
    0 AS throttled,
    s.weight,
    (s.override - '{by,at}'::text[]) AS override,
    (s.override ->> 'by'::text) AS changed_by,
    ((s.override ->> 'at'::text))::timestamp with time zone AS changed_at
   FROM ((holdfast.limit_settings s
     LEFT JOIN holdfast.limit_rules r ON ((r.template = holdfast.rule_of(s.key))))
     CROSS JOIN LATERAL ( SELECT
                CASE
                    WHEN (s.kind = 'order'::text) THEN 1
                    ELSE COALESCE(s.concurrency, r.concurrency)
                END AS concurrency,
            COALESCE(s.rate, r.rate) AS rate,
            COALESCE(s.per, r.per) AS per,
            COALESCE(s.burst, r.burst) AS burst,
            COALESCE(s.breaker_after, r.breaker_after) AS breaker_after,
            COALESCE(s.breaker_pause, r.breaker_pause) AS breaker_pause,
            COALESCE(s.breaker_cap, r.breaker_cap) AS breaker_cap) e)
  WHERE (NOT (EXISTS ( SELECT 1
           FROM holdfast.limits m
          WHERE (m.key = s.key))));


-- Name: outbox; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.outbox AS
 SELECT j.id,
    j.tenant,
    m.channel,
    m.key,
    holdfast.idempotency_key(m.channel, (j.tenant)::text, m.key) AS idempotency_key,
    ((j.payload)::json ->> 'order'::text) AS "order",
        CASE j.status
            WHEN 'running'::holdfast.job_status THEN 'delivering'::text
            WHEN 'succeeded'::holdfast.job_status THEN 'delivered'::text
            WHEN 'queued'::holdfast.job_status THEN 'pending'::text
            WHEN 'retrying'::holdfast.job_status THEN 'pending'::text
            ELSE (j.status)::text
        END AS status,
    j.attempts,
    j.max_attempts,
    ((j.payload)::json -> 'body'::text) AS payload,
    j.last_error AS error,
    j.queue,
    j.run_at,
    j.created_at,
        CASE
            WHEN (j.status = 'succeeded'::holdfast.job_status) THEN j.finished_at
            ELSE NULL::timestamp with time zone
        END AS delivered_at,
    j.finished_at,
    ((j.attempts >
        CASE
            WHEN (j.status = ANY (ARRAY['running'::holdfast.job_status, 'succeeded'::holdfast.job_status])) THEN 1
            ELSE 0
        END) OR COALESCE((((j.payload)::json ->> 'maybe_sent'::text) = 'true'::text), false)) AS maybe_sent,
    j.place
   FROM (holdfast.jobs j
     CROSS JOIN LATERAL ( SELECT substr((j.task)::text, 9) AS channel,
            ((j.payload)::json ->> 'key'::text) AS key) m)
  WHERE (starts_with((j.task)::text, 'channel:'::text) AND (m.key IS NOT NULL));


-- Name: queue_depth; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.queue_depth AS
 SELECT queue,
    ready,
    running,
    later,
    dead,
    oldest_wait,
    estimated
   FROM holdfast.count_jobs() count_jobs(queue, ready, running, later, dead, oldest_wait, estimated);


-- Name: recent_attempts; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.recent_attempts AS
 SELECT c.queue,
    c.task,
    c.wait,
    sum(((c.ended)::double precision * w.weight)) AS ended,
    sum(((c.failed)::double precision * w.weight)) AS failed,
    sum(((c.lost)::double precision * w.weight)) AS lost,
    sum((c.run_seconds * w.weight)) AS run_seconds
   FROM ((( SELECT holdfast.clock() AS now) t
     CROSS JOIN LATERAL ( VALUES (date_trunc('minute'::text, t.now),(1)::double precision), ((date_trunc('minute'::text, t.now) - '00:01:00'::interval),((1)::double precision - (date_part('second'::text, t.now) / (60)::double precision)))) w(minute, weight))
     CROSS JOIN LATERAL ( SELECT c_1.minute,
            c_1.queue,
            c_1.task,
            c_1.wait,
            c_1.backend,
            c_1.ended,
            c_1.failed,
            c_1.lost,
            c_1.run_seconds
           FROM holdfast.attempt_counts c_1
          WHERE (c_1.minute = w.minute)
         OFFSET 0) c)
  GROUP BY c.queue, c.task, c.wait;


-- Name: releases_id_seq; Type: SEQUENCE; Schema: holdfast; Owner: -

ALTER TABLE holdfast.releases ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.releases_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


-- Name: reopenings; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.reopenings (
    after text NOT NULL COLLATE pg_catalog."C"
);


-- Name: responses; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.responses (
    owner text NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    status smallint,
    body text,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT responses_key_check CHECK (((length(key) >= 1) AND (length(key) <= 200)))
);


-- Name: rings; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.rings (
    queue text NOT NULL,
    priority smallint NOT NULL,
    direct boolean NOT NULL,
    front bigint NOT NULL
)
WITH (fillfactor='50');


-- Name: schedules; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.schedules (
    name text NOT NULL,
    task holdfast.task_name NOT NULL,
    cron text NOT NULL,
    zone text NOT NULL,
    missed holdfast.missed_policy NOT NULL,
    payload jsonb NOT NULL,
    options jsonb NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    next_at timestamp with time zone,
    last_at timestamp with time zone,
    last_job uuid,
    problem text,
    registered_at timestamp with time zone NOT NULL,
    CONSTRAINT schedules_cron_check CHECK (((length(cron) >= 1) AND (length(cron) <= 200))),
    CONSTRAINT schedules_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200))),
    CONSTRAINT schedules_next_at_check CHECK (((next_at >= '1970-01-01 00:00:00+00'::timestamp with time zone) AND (next_at <= '9999-12-31 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT schedules_zone_check CHECK (((length(zone) >= 1) AND (length(zone) <= 100)))
)
WITH (fillfactor='50');


-- Name: schema_files; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.schema_files (
    name text NOT NULL,
    checksum text NOT NULL
);


-- Name: schema_info; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.schema_info (
    version integer NOT NULL,
    applied_at timestamp with time zone,
    works_with integer,
    steps integer DEFAULT 0 NOT NULL
);


-- Name: signals; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.signals (
    tenant text NOT NULL,
    name text NOT NULL,
    value holdfast.readable_json NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT signals_name_check CHECK (((length(name) >= 1) AND (length(name) <= 200)))
);


-- Name: sleepers; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.sleepers (
    queue text NOT NULL,
    worker text NOT NULL,
    backend integer DEFAULT pg_backend_pid() NOT NULL,
    backend_start timestamp with time zone,
    application text DEFAULT "left"(current_setting('application_name'::text), 63) NOT NULL
)
WITH (fillfactor='50');


-- Name: steps_number_seq; Type: SEQUENCE; Schema: holdfast; Owner: -

ALTER TABLE holdfast.steps ALTER COLUMN number ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME holdfast.steps_number_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);


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


-- Name: tenant_shares; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.tenant_shares AS
 SELECT c.tenant,
    c.running,
    ((c.running)::numeric / sum(c.running) OVER ()) AS share,
    c.oldest_start,
    COALESCE(m.weight, (1)::double precision) AS weight
   FROM (( SELECT claimed_jobs.tenant,
            count(*) AS running,
            min(claimed_jobs.claimed_at) AS oldest_start
           FROM holdfast.claimed_jobs() claimed_jobs(id, task, queue, tenant, keys, worker, claimed_at, expires_at)
          GROUP BY claimed_jobs.tenant) c
     LEFT JOIN holdfast.limit_settings m ON ((m.key = ('tenant:'::text || c.tenant))));


-- Name: token_clock; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.token_clock (
    one boolean DEFAULT true NOT NULL,
    timeline integer DEFAULT 0 NOT NULL,
    ahead bigint DEFAULT 0 NOT NULL,
    changed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT token_clock_one_check CHECK (one)
);


-- Name: usage_counts; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.usage_counts (
    minute timestamp with time zone NOT NULL,
    tenant text NOT NULL,
    task text NOT NULL,
    backend integer NOT NULL,
    runs bigint NOT NULL,
    failures bigint NOT NULL,
    run_seconds double precision NOT NULL,
    queue_seconds double precision NOT NULL
)
WITH (fillfactor='50');


-- Name: usage; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.usage AS
 SELECT minute,
    tenant,
    task,
    (sum(runs))::bigint AS runs,
    (sum(failures))::bigint AS failures,
    sum(run_seconds) AS run_seconds,
    sum(queue_seconds) AS queue_seconds
   FROM holdfast.usage_counts
  GROUP BY minute, tenant, task;


-- Name: webhook_bodies; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.webhook_bodies (
    id uuid NOT NULL,
    tenant holdfast.tenant_name,
    body text NOT NULL,
    deliveries uuid[] NOT NULL,
    expires_at timestamp with time zone NOT NULL
);


-- Name: webhook_deliveries; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.webhook_deliveries AS
 SELECT id AS webhook_delivery_id,
    tenant AS tenant_id,
        CASE
            WHEN (endpoint_key ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'::text) THEN (endpoint_key)::uuid
            ELSE NULL::uuid
        END AS webhook_endpoint_id,
        CASE
            WHEN (((payload)::json ->> 'event'::text) ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'::text) THEN (((payload)::json ->> 'event'::text))::uuid
            ELSE NULL::uuid
        END AS event_id,
        CASE status
            WHEN 'succeeded'::holdfast.job_status THEN 'DELIVERED'::text
            WHEN 'queued'::holdfast.job_status THEN 'PENDING'::text
            WHEN 'running'::holdfast.job_status THEN 'PENDING'::text
            WHEN 'retrying'::holdfast.job_status THEN 'PENDING'::text
            ELSE 'FAILED'::text
        END AS status,
        CASE
            WHEN ((answer ->> 'http_status'::text) ~ '^[0-9]{3}$'::text) THEN ((answer ->> 'http_status'::text))::integer
            ELSE NULL::integer
        END AS http_status,
    (answer -> 'response_headers'::text) AS response_headers,
        CASE
            WHEN ((answer ->> 'response_body'::text) ~ '^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$'::text) THEN decode((answer ->> 'response_body'::text), 'base64'::text)
            ELSE NULL::bytea
        END AS response_body,
        CASE
            WHEN (status = 'succeeded'::holdfast.job_status) THEN finished_at
            ELSE NULL::timestamp with time zone
        END AS delivered_at,
        CASE
            WHEN (status <> 'succeeded'::holdfast.job_status) THEN (last_error ->> 'message'::text)
            ELSE NULL::text
        END AS error_message,
    created_at,
    ((payload)::json ->> 'type'::text) AS event_type,
    ( SELECT b.body
           FROM holdfast.webhook_bodies b
          WHERE ((b.id =
                CASE
                    WHEN (((j.payload)::json ->> 'body_id'::text) ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'::text) THEN (((j.payload)::json ->> 'body_id'::text))::uuid
                    ELSE NULL::uuid
                END) AND (NOT ((b.tenant)::text IS DISTINCT FROM (j.tenant)::text)))) AS body,
    status AS job_status,
    attempts,
    max_attempts,
        CASE
            WHEN (status = ANY (ARRAY['queued'::holdfast.job_status, 'retrying'::holdfast.job_status])) THEN run_at
            ELSE NULL::timestamp with time zone
        END AS next_attempt_at,
    finished_at,
    endpoint_key
   FROM ( SELECT jobs.id,
            jobs.task,
            jobs.tenant,
            jobs.queue,
            jobs.priority,
            jobs.payload,
            jobs.status,
            jobs.attempts,
            jobs.max_attempts,
            jobs.run_at,
            jobs.last_error,
            jobs.created_at,
            jobs.started_at,
            jobs.finished_at,
            jobs.result,
            jobs.dedupe_key,
            jobs.locked_by,
            jobs.locked_at,
            jobs.heartbeat_at,
            jobs.lease_expires_at,
            jobs.token,
            jobs.batch,
            jobs.deadline,
            jobs.progress,
            jobs.failures,
            jobs.fingerprint,
            jobs.place,
            jobs.waits_for,
                CASE
                    WHEN (jobs.status = 'succeeded'::holdfast.job_status) THEN jobs.result
                    ELSE (jobs.last_error #> '{details,response}'::text[])
                END AS answer,
            "substring"((jobs.payload)::text, '"endpoint" ?: ?"([0-9a-f-]{36})"'::text) AS endpoint_key
           FROM holdfast.jobs
          WHERE ((jobs.task)::text = 'holdfast.webhook'::text)) j;


-- Name: webhook_endpoint_state; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.webhook_endpoint_state AS
 SELECT e.id,
    e.tenant,
    e.url,
    e.events,
    e.prefix,
    e.timeout,
    e.dev,
    e.enabled,
    e.disabled_reason,
    e.description,
    e.created_at,
    e.updated_at,
    ( SELECT (count(*))::integer AS count
           FROM jsonb_array_elements(e.secrets) s(value)
          WHERE COALESCE((((s.value ->> 'until'::text))::timestamp with time zone > holdfast.clock()), true)) AS secrets,
    ( SELECT max(((s.value ->> 'until'::text))::timestamp with time zone) AS max
           FROM jsonb_array_elements(e.secrets) s(value)
          WHERE (((s.value ->> 'until'::text))::timestamp with time zone > holdfast.clock())) AS old_secrets_until,
    COALESCE(m.failure_streak, 0) AS failure_streak,
    m.last_success_at,
    m.last_failure_at,
        CASE
            WHEN (m.open_until > holdfast.clock()) THEN m.open_until
            ELSE NULL::timestamp with time zone
        END AS breaker_open_until
   FROM (holdfast.webhook_endpoints e
     LEFT JOIN LATERAL ( SELECT u.key,
            u.kind,
            u.template,
            u.concurrency,
            u.running,
            u.rate,
            u.per,
            u.burst,
            u.tokens,
            u.next_token,
            u.paused,
            u.paused_at,
            u.paused_until,
            u.paused_by,
            u.paused_reason,
            u.breaker,
            u.open_until,
            u.probe,
            u.failure_streak,
            u.last_success_at,
            u.last_failure_at,
            u.breaker_after,
            u.breaker_pause,
            u.breaker_cap,
            u.throttled,
            u.weight,
            u.override,
            u.changed_by,
            u.changed_at
           FROM holdfast.limit_use u
          WHERE (u.key = ('webhook:'::text || e.id))
         OFFSET 0) m ON (true));


-- Name: worker_health_summary; Type: VIEW; Schema: holdfast; Owner: -

CREATE VIEW holdfast.worker_health_summary AS
 SELECT worker_id,
    count(*) FILTER (WHERE (kind = 'tick'::text)) AS tick_count,
    count(*) FILTER (WHERE (kind = 'window'::text)) AS window_count,
    (round(avg(tick_duration_ms) FILTER (WHERE (kind = 'tick'::text))))::bigint AS avg_tick_duration_ms,
    sum(jobs_claimed) AS total_jobs_claimed,
    sum(jobs_processed) AS total_jobs_processed,
    sum(jobs_succeeded) AS total_jobs_succeeded,
    sum(jobs_failed) AS total_jobs_failed,
    sum(jobs_throttled) AS total_jobs_throttled,
    sum(lock_contention_count) AS total_lock_contentions,
    max(tick_ended_at) FILTER (WHERE (kind = 'tick'::text)) AS last_tick_at,
    max(tick_ended_at) FILTER (WHERE (kind = 'window'::text)) AS last_window_at,
    holdfast.level_of('tick_duration'::text, (((max(tick_duration_ms) FILTER (WHERE (kind = 'tick'::text)))::numeric / 1000.0))::double precision) AS tick_duration_level,
    holdfast.level_of('lock_contentions'::text, (max(lock_contention_count) FILTER (WHERE (kind = 'tick'::text)))::double precision) AS lock_contentions_level,
    holdfast.level_of('jobs_per_tick'::text, (max(jobs_claimed) FILTER (WHERE (kind = 'tick'::text)))::double precision) AS jobs_per_tick_level
   FROM holdfast.worker_tick_metrics
  WHERE ((tick_ended_at > (holdfast.clock() - '00:05:00'::interval)) AND (tick_started_at > (holdfast.clock() - '1 day'::interval)))
  GROUP BY worker_id;


-- Name: worker_stops; Type: TABLE; Schema: holdfast; Owner: -

CREATE TABLE holdfast.worker_stops (
    worker text NOT NULL,
    now boolean NOT NULL,
    requested_at timestamp with time zone NOT NULL,
    by text NOT NULL,
    reason text
);


-- Name: history_default; Type: TABLE ATTACH; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.history ATTACH PARTITION holdfast.history_default DEFAULT;


-- Name: actions actions_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.actions
    ADD CONSTRAINT actions_pkey PRIMARY KEY (id);


-- Name: api_tokens api_tokens_digest_key; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.api_tokens
    ADD CONSTRAINT api_tokens_digest_key UNIQUE (digest);


-- Name: api_tokens api_tokens_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.api_tokens
    ADD CONSTRAINT api_tokens_pkey PRIMARY KEY (id);


-- Name: attempt_counts attempt_counts_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.attempt_counts
    ADD CONSTRAINT attempt_counts_pkey PRIMARY KEY (minute, queue, task, wait, backend);


-- Name: batch_counts batch_counts_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.batch_counts
    ADD CONSTRAINT batch_counts_pkey PRIMARY KEY (batch, backend);


-- Name: batches batches_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.batches
    ADD CONSTRAINT batches_pkey PRIMARY KEY (id);


-- Name: blocks blocks_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.blocks
    ADD CONSTRAINT blocks_pkey PRIMARY KEY (key);


-- Name: breaker_events breaker_events_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.breaker_events
    ADD CONSTRAINT breaker_events_pkey PRIMARY KEY (key, id);


-- Name: cancels cancels_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.cancels
    ADD CONSTRAINT cancels_pkey PRIMARY KEY (id);


-- Name: claims claims_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.claims
    ADD CONSTRAINT claims_pkey PRIMARY KEY (token);


-- Name: dead dead_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.dead
    ADD CONSTRAINT dead_pkey PRIMARY KEY (id);


-- Name: dedupe dedupe_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.dedupe
    ADD CONSTRAINT dedupe_pkey PRIMARY KEY (key);


-- Name: error_counts error_counts_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.error_counts
    ADD CONSTRAINT error_counts_pkey PRIMARY KEY (fingerprint, hour);


-- Name: error_groups error_groups_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.error_groups
    ADD CONSTRAINT error_groups_pkey PRIMARY KEY (fingerprint);


-- Name: flows flows_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.flows
    ADD CONSTRAINT flows_pkey PRIMARY KEY (queue, priority, direct, flow);


-- Name: folds folds_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.folds
    ADD CONSTRAINT folds_pkey PRIMARY KEY (queue);


-- Name: follows follows_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.follows
    ADD CONSTRAINT follows_pkey PRIMARY KEY (job, follower);


-- Name: job_logs job_logs_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.job_logs
    ADD CONSTRAINT job_logs_pkey PRIMARY KEY (id, token);


-- Name: kept_orders kept_orders_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.kept_orders
    ADD CONSTRAINT kept_orders_pkey PRIMARY KEY (key);


-- Name: lanes lanes_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.lanes
    ADD CONSTRAINT lanes_pkey PRIMARY KEY (queue, priority, lane);


-- Name: later later_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.later
    ADD CONSTRAINT later_pkey PRIMARY KEY (id);


-- Name: leader leader_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.leader
    ADD CONSTRAINT leader_pkey PRIMARY KEY (chore);


-- Name: limit_rules limit_rules_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.limit_rules
    ADD CONSTRAINT limit_rules_pkey PRIMARY KEY (template);


-- Name: limit_settings limit_settings_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.limit_settings
    ADD CONSTRAINT limit_settings_pkey PRIMARY KEY (key);


-- Name: limits limits_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.limits
    ADD CONSTRAINT limits_pkey PRIMARY KEY (key);


-- Name: live live_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.live
    ADD CONSTRAINT live_pkey PRIMARY KEY (id);


-- Name: minutes minutes_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.minutes
    ADD CONSTRAINT minutes_pkey PRIMARY KEY (minute, queue);


-- Name: progress progress_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (id);


-- Name: responses responses_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.responses
    ADD CONSTRAINT responses_pkey PRIMARY KEY (owner, key);


-- Name: rings rings_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.rings
    ADD CONSTRAINT rings_pkey PRIMARY KEY (queue, priority, direct);


-- Name: schedules schedules_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.schedules
    ADD CONSTRAINT schedules_pkey PRIMARY KEY (name);


-- Name: schema_files schema_files_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.schema_files
    ADD CONSTRAINT schema_files_pkey PRIMARY KEY (name);


-- Name: schema_info schema_info_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.schema_info
    ADD CONSTRAINT schema_info_pkey PRIMARY KEY (version);


-- Name: settings settings_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (name);


-- Name: signals signals_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.signals
    ADD CONSTRAINT signals_pkey PRIMARY KEY (tenant, name);


-- Name: sleepers sleepers_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.sleepers
    ADD CONSTRAINT sleepers_pkey PRIMARY KEY (queue, worker);


-- Name: snapshots snapshots_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.snapshots
    ADD CONSTRAINT snapshots_pkey PRIMARY KEY (at);


-- Name: steps steps_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.steps
    ADD CONSTRAINT steps_pkey PRIMARY KEY (job, name);


-- Name: tasks tasks_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.tasks
    ADD CONSTRAINT tasks_pkey PRIMARY KEY (name);


-- Name: throttled throttled_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.throttled
    ADD CONSTRAINT throttled_pkey PRIMARY KEY (key, tenant);


-- Name: ticks ticks_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.ticks
    ADD CONSTRAINT ticks_pkey PRIMARY KEY (id);


-- Name: token_clock token_clock_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.token_clock
    ADD CONSTRAINT token_clock_pkey PRIMARY KEY (one);


-- Name: usage_counts usage_counts_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.usage_counts
    ADD CONSTRAINT usage_counts_pkey PRIMARY KEY (minute, tenant, task, backend);


-- Name: webhook_bodies webhook_bodies_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.webhook_bodies
    ADD CONSTRAINT webhook_bodies_pkey PRIMARY KEY (id);


-- Name: webhook_endpoints webhook_endpoints_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.webhook_endpoints
    ADD CONSTRAINT webhook_endpoints_pkey PRIMARY KEY (id);


-- Name: worker_stops worker_stops_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.worker_stops
    ADD CONSTRAINT worker_stops_pkey PRIMARY KEY (worker);


-- Name: workers workers_pkey; Type: CONSTRAINT; Schema: holdfast; Owner: -

ALTER TABLE ONLY holdfast.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (id);


-- Name: actions_by_target; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX actions_by_target ON holdfast.actions USING btree (target, id) WHERE (target IS NOT NULL);


-- Name: actions_by_time; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX actions_by_time ON holdfast.actions USING btree (finished_at);


-- Name: actions_running; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX actions_running ON holdfast.actions USING btree (id) WHERE (state = 'running'::text);


-- Name: arrivals_new; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX arrivals_new ON holdfast.arrivals USING btree (queue, xid);


-- Name: batches_by_tenant; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX batches_by_tenant ON holdfast.batches USING btree (tenant, id);


-- Name: batches_ended; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX batches_ended ON holdfast.batches USING btree (finished_at) WHERE (finished_at IS NOT NULL);


-- Name: batches_under_way; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX batches_under_way ON holdfast.batches USING btree (id) WHERE (finished_at IS NULL);


-- Name: breaker_events_by_time; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX breaker_events_by_time ON holdfast.breaker_events USING btree (at);


-- Name: cancels_by_token; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX cancels_by_token ON holdfast.cancels USING btree (token);


-- Name: dead_by_fingerprint; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX dead_by_fingerprint ON holdfast.dead USING btree (fingerprint, id);


-- Name: dead_by_tenant; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX dead_by_tenant ON holdfast.dead USING btree (tenant, finished_at DESC, id) WHERE (tenant IS NOT NULL);


-- Name: dead_by_time; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX dead_by_time ON holdfast.dead USING btree (finished_at DESC, id);


-- Name: dead_deliveries; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX dead_deliveries ON holdfast.dead USING btree ("substring"((payload)::text, '"endpoint" ?: ?"([0-9a-f-]{36})"'::text), finished_at) WHERE ((task)::text = 'holdfast.webhook'::text);


-- Name: dead_messages; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX dead_messages ON holdfast.dead USING btree (id) WHERE starts_with((task)::text, 'channel:'::text);


-- Name: dedupe_expiring; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX dedupe_expiring ON holdfast.dedupe USING btree (expires_at) WHERE (expires_at IS NOT NULL);


-- Name: endings_by_xid; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX endings_by_xid ON holdfast.endings USING btree (xid, job);


-- Name: error_arrivals_new; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX error_arrivals_new ON holdfast.error_arrivals USING btree (xid);


-- Name: error_counts_by_hour; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX error_counts_by_hour ON holdfast.error_counts USING btree (hour);


-- Name: error_groups_by_task; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX error_groups_by_task ON holdfast.error_groups USING btree (task);


-- Name: flows_ring; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX flows_ring ON holdfast.flows USING btree (queue, priority, direct, tag, flow) WHERE open;


-- Name: follows_by_follower; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX follows_by_follower ON holdfast.follows USING btree (follower);


-- Name: history_by_id; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX history_by_id ON ONLY holdfast.history USING btree (id);


-- Name: history_messages; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX history_messages ON ONLY holdfast.history USING btree (id) WHERE starts_with((task)::text, 'channel:'::text);


-- Name: history_deliveries; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX history_deliveries ON ONLY holdfast.history USING btree ("substring"((payload)::text, '"endpoint" ?: ?"([0-9a-f-]{36})"'::text), finished_at) WHERE ((task)::text = 'holdfast.webhook'::text);


-- Name: history_default_by_time; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX history_default_by_time ON holdfast.history_default USING btree (finished_at);


-- Name: history_default_id_idx; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX history_default_id_idx ON holdfast.history_default USING btree (id);


-- Name: history_default_id_idx1; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX history_default_id_idx1 ON holdfast.history_default USING btree (id) WHERE starts_with((task)::text, 'channel:'::text);


-- Name: history_default_substring_finished_at_idx; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX history_default_substring_finished_at_idx ON holdfast.history_default USING btree ("substring"((payload)::text, '"endpoint" ?: ?"([0-9a-f-]{36})"'::text), finished_at) WHERE ((task)::text = 'holdfast.webhook'::text);


-- Name: job_logs_by_time; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX job_logs_by_time ON holdfast.job_logs USING btree (updated_at);


-- Name: lanes_closed; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX lanes_closed ON holdfast.lanes USING btree (closed_by, queue, priority, direct, closed_at) WHERE (closed_by IS NOT NULL);


-- Name: lanes_open; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX lanes_open ON holdfast.lanes USING btree (queue, priority, direct, flow, lane) WHERE open;


-- Name: later_batch; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX later_batch ON holdfast.later USING btree (batch) WHERE (batch IS NOT NULL);


-- Name: later_deadline; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX later_deadline ON holdfast.later USING btree (deadline) WHERE (deadline IS NOT NULL);


-- Name: later_due; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX later_due ON holdfast.later USING btree (run_at, id);


-- Name: later_messages; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX later_messages ON holdfast.later USING btree (id) WHERE starts_with((task)::text, 'channel:'::text);


-- Name: limit_settings_breakers; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX limit_settings_breakers ON holdfast.limit_settings USING btree (key) WHERE (breaker_after IS NOT NULL);


-- Name: limit_settings_by_kind; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX limit_settings_by_kind ON holdfast.limit_settings USING btree (kind) WHERE (kind = ANY (ARRAY['queue'::text, 'task'::text]));


-- Name: limit_settings_weights; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX limit_settings_weights ON holdfast.limit_settings USING btree (key) WHERE (weight IS NOT NULL);


-- Name: limits_by_kind; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX limits_by_kind ON holdfast.limits USING btree (kind) WHERE (kind <> 'key'::text);


-- Name: limits_by_template; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX limits_by_template ON holdfast.limits USING btree (template);


-- Name: limits_opening; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX limits_opening ON holdfast.limits USING btree (opens_at) WHERE (opens_at IS NOT NULL);


-- Name: limits_probing; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX limits_probing ON holdfast.limits USING btree (probe) WHERE (probe IS NOT NULL);


-- Name: live_batch; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX live_batch ON holdfast.live USING btree (batch) WHERE (batch IS NOT NULL);


-- Name: live_deadline; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX live_deadline ON holdfast.live USING btree (deadline) WHERE (deadline IS NOT NULL);


-- Name: live_fetch; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX live_fetch ON holdfast.live USING btree (queue, priority, lane, run_at, id);


-- Name: live_messages; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX live_messages ON holdfast.live USING btree (id) WHERE starts_with((task)::text, 'channel:'::text);


-- Name: progress_by_time; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX progress_by_time ON holdfast.progress USING btree (updated_at);


-- Name: releases_new; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX releases_new ON holdfast.releases USING btree (xid);


-- Name: responses_by_time; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX responses_by_time ON holdfast.responses USING btree (created_at);


-- Name: signals_expiring; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX signals_expiring ON holdfast.signals USING btree (expires_at);


-- Name: steps_by_ref; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX steps_by_ref ON holdfast.steps USING btree (ref) WHERE (ref IS NOT NULL);


-- Name: steps_by_signal; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX steps_by_signal ON holdfast.steps USING btree (name, tenant) WHERE ((kind = 'signal'::text) AND (finished_at IS NULL));


-- Name: steps_to_check; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX steps_to_check ON holdfast.steps USING btree (check_at) WHERE (check_at IS NOT NULL);


-- Name: ticks_by_time; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX ticks_by_time ON holdfast.ticks USING btree (started_at);


-- Name: webhook_bodies_expiring; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX webhook_bodies_expiring ON holdfast.webhook_bodies USING btree (expires_at);


-- Name: webhook_endpoints_by_tenant; Type: INDEX; Schema: holdfast; Owner: -

CREATE INDEX webhook_endpoints_by_tenant ON holdfast.webhook_endpoints USING btree (tenant);


-- Name: history_default_id_idx; Type: INDEX ATTACH; Schema: holdfast; Owner: -

ALTER INDEX holdfast.history_by_id ATTACH PARTITION holdfast.history_default_id_idx;


-- Name: history_default_id_idx1; Type: INDEX ATTACH; Schema: holdfast; Owner: -

ALTER INDEX holdfast.history_messages ATTACH PARTITION holdfast.history_default_id_idx1;


-- Name: history_default_substring_finished_at_idx; Type: INDEX ATTACH; Schema: holdfast; Owner: -

ALTER INDEX holdfast.history_deliveries ATTACH PARTITION holdfast.history_default_substring_finished_at_idx;


-- Name: live live_arrival; Type: TRIGGER; Schema: holdfast; Owner: -

CREATE TRIGGER live_arrival AFTER INSERT ON holdfast.live FOR EACH ROW WHEN (((new.lane <> ALL (ARRAY[(0)::bigint, '9223372036854775807'::bigint])) AND (current_setting('holdfast.announces'::text, true) IS DISTINCT FROM 'on'::text))) EXECUTE FUNCTION holdfast.announce_lane();


-- Name: live live_moved; Type: TRIGGER; Schema: holdfast; Owner: -

CREATE TRIGGER live_moved AFTER UPDATE OF lane ON holdfast.live FOR EACH ROW WHEN ((new.lane <> 0)) EXECUTE FUNCTION holdfast.announce_lane();


-- Name: SCHEMA holdfast; Type: ACL; Schema: -; Owner: -

GRANT USAGE ON SCHEMA holdfast TO holdfast_enqueue;
GRANT USAGE ON SCHEMA holdfast TO holdfast_worker;
GRANT USAGE ON SCHEMA holdfast TO holdfast_reader;
GRANT USAGE ON SCHEMA holdfast TO holdfast_service;
GRANT USAGE ON SCHEMA holdfast TO holdfast_admin;


-- Name: FUNCTION fit_keys(p_keys text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.fit_keys(p_keys text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.fit_keys(p_keys text[]) TO holdfast_enqueue;


-- Name: FUNCTION abort_action(p_id uuid, p_by text, p_reason text, p_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.abort_action(p_id uuid, p_by text, p_reason text, p_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.abort_action(p_id uuid, p_by text, p_reason text, p_tenant text) TO holdfast_service;


-- Name: FUNCTION act_on_jobs(p_kind text, p_ids uuid[], p_params jsonb, p_by text, p_reason text, p_tenant text, p_deliveries boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.act_on_jobs(p_kind text, p_ids uuid[], p_params jsonb, p_by text, p_reason text, p_tenant text, p_deliveries boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.act_on_jobs(p_kind text, p_ids uuid[], p_params jsonb, p_by text, p_reason text, p_tenant text, p_deliveries boolean) TO holdfast_service;


-- Name: FUNCTION add_deliveries(p_event uuid, p_type text, p_body text, p_tenant text, p_endpoints uuid[], p_known boolean, p_priority integer, p_max_attempts integer, p_retry jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.add_deliveries(p_event uuid, p_type text, p_body text, p_tenant text, p_endpoints uuid[], p_known boolean, p_priority integer, p_max_attempts integer, p_retry jsonb) FROM PUBLIC;


-- Name: FUNCTION add_endpoint(p_id uuid, p_url text, p_secret text, p_tenant text, p_events text[], p_prefix text, p_timeout double precision, p_dev boolean, p_description text, p_by text, p_reason text, p_view_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.add_endpoint(p_id uuid, p_url text, p_secret text, p_tenant text, p_events text[], p_prefix text, p_timeout double precision, p_dev boolean, p_description text, p_by text, p_reason text, p_view_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.add_endpoint(p_id uuid, p_url text, p_secret text, p_tenant text, p_events text[], p_prefix text, p_timeout double precision, p_dev boolean, p_description text, p_by text, p_reason text, p_view_tenant text) TO holdfast_service;


-- Name: FUNCTION add_to_batch(p_batch uuid, p_jobs bigint); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.add_to_batch(p_batch uuid, p_jobs bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.add_to_batch(p_batch uuid, p_jobs bigint) TO holdfast_enqueue;


-- Name: FUNCTION after_restore(p_plan boolean, p_id uuid, p_by text, p_reason text, p_before timestamp with time zone, p_most integer, OUT before timestamp with time zone, OUT newest timestamp with time zone, OUT jobs integer, OUT workers text[], OUT sleepers integer, OUT messages integer, OUT deliveries integer, OUT tokens boolean, OUT slots integer, OUT actions integer, OUT examples uuid[], OUT more boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.after_restore(p_plan boolean, p_id uuid, p_by text, p_reason text, p_before timestamp with time zone, p_most integer, OUT before timestamp with time zone, OUT newest timestamp with time zone, OUT jobs integer, OUT workers text[], OUT sleepers integer, OUT messages integer, OUT deliveries integer, OUT tokens boolean, OUT slots integer, OUT actions integer, OUT examples uuid[], OUT more boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.after_restore(p_plan boolean, p_id uuid, p_by text, p_reason text, p_before timestamp with time zone, p_most integer, OUT before timestamp with time zone, OUT newest timestamp with time zone, OUT jobs integer, OUT workers text[], OUT sleepers integer, OUT messages integer, OUT deliveries integer, OUT tokens boolean, OUT slots integer, OUT actions integer, OUT examples uuid[], OUT more boolean) TO holdfast_admin;


-- Name: FUNCTION announce_lane(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.announce_lane() FROM PUBLIC;


-- Name: FUNCTION announce_lanes(p_queue text, p_priority integer, p_tenant text, p_keys jsonb, p_jobs bigint); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.announce_lanes(p_queue text, p_priority integer, p_tenant text, p_keys jsonb, p_jobs bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.announce_lanes(p_queue text, p_priority integer, p_tenant text, p_keys jsonb, p_jobs bigint) TO holdfast_enqueue;


-- Name: FUNCTION announce_strays(p_pages integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.announce_strays(p_pages integer) FROM PUBLIC;


-- Name: FUNCTION apply_action(p_kind text, p_params jsonb, p_ids uuid[], OUT changed uuid[], OUT locked uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.apply_action(p_kind text, p_params jsonb, p_ids uuid[], OUT changed uuid[], OUT locked uuid[]) FROM PUBLIC;


-- Name: FUNCTION apply_singly(p_kind text, p_params jsonb, p_ids uuid[], p_until timestamp with time zone, OUT changed uuid[], OUT locked uuid[], OUT problem text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.apply_singly(p_kind text, p_params jsonb, p_ids uuid[], p_until timestamp with time zone, OUT changed uuid[], OUT locked uuid[], OUT problem text) FROM PUBLIC;


-- Name: FUNCTION batch_result(p_batch uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.batch_result(p_batch uuid) FROM PUBLIC;


-- Name: FUNCTION begin_response(p_owner text, p_key text, p_fingerprint bytea, OUT outcome text, OUT status smallint, OUT body text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.begin_response(p_owner text, p_key text, p_fingerprint bytea, OUT outcome text, OUT status smallint, OUT body text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.begin_response(p_owner text, p_key text, p_fingerprint bytea, OUT outcome text, OUT status smallint, OUT body text) TO holdfast_service;


-- Name: FUNCTION begin_step(p_id uuid, p_token bigint, p_name text, p_kind text, p_ref uuid, p_detail jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.begin_step(p_id uuid, p_token bigint, p_name text, p_kind text, p_ref uuid, p_detail jsonb) FROM PUBLIC;


-- Name: FUNCTION cancel(p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.cancel(p_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.cancel(p_ids uuid[]) TO holdfast_service;


-- Name: FUNCTION cancel_batch(p_batch uuid, p_limit integer, p_by text, p_reason text, p_view_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.cancel_batch(p_batch uuid, p_limit integer, p_by text, p_reason text, p_view_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.cancel_batch(p_batch uuid, p_limit integer, p_by text, p_reason text, p_view_tenant text) TO holdfast_service;


-- Name: FUNCTION cancel_waiting(p_ids uuid[], p_error jsonb, p_defer boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.cancel_waiting(p_ids uuid[], p_error jsonb, p_defer boolean) FROM PUBLIC;


-- Name: FUNCTION change_endpoint(p_id uuid, p_change jsonb, p_by text, p_reason text, p_view_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.change_endpoint(p_id uuid, p_change jsonb, p_by text, p_reason text, p_view_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.change_endpoint(p_id uuid, p_change jsonb, p_by text, p_reason text, p_view_tenant text) TO holdfast_service;


-- Name: FUNCTION change_jobs(p_ids uuid[], p_queue text, p_priority integer, p_run_at timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.change_jobs(p_ids uuid[], p_queue text, p_priority integer, p_run_at timestamp with time zone) FROM PUBLIC;


-- Name: TABLE actions; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.actions TO holdfast_reader;


-- Name: FUNCTION change_matching(p_action holdfast.actions, p_ids uuid[], p_until timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.change_matching(p_action holdfast.actions, p_ids uuid[], p_until timestamp with time zone) FROM PUBLIC;


-- Name: FUNCTION change_override(p_override jsonb, p_beneath jsonb, p_change jsonb, p_by text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.change_override(p_override jsonb, p_beneath jsonb, p_change jsonb, p_by text) FROM PUBLIC;


-- Name: FUNCTION check_action(p_kind text, p_filter jsonb, p_params jsonb, p_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.check_action(p_kind text, p_filter jsonb, p_params jsonb, p_tenant text) FROM PUBLIC;


-- Name: FUNCTION check_after(p_id uuid, p_after uuid[], p_on_failure text, p_run_at timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.check_after(p_id uuid, p_after uuid[], p_on_failure text, p_run_at timestamp with time zone) FROM PUBLIC;


-- Name: FUNCTION check_dedupe_key(p_key text, p_task text, p_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.check_dedupe_key(p_key text, p_task text, p_tenant text) FROM PUBLIC;


-- Name: COLUMN webhook_endpoints.id; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(id) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: COLUMN webhook_endpoints.tenant; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(tenant) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: COLUMN webhook_endpoints.url; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(url) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: COLUMN webhook_endpoints.events; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(events) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: COLUMN webhook_endpoints.prefix; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(prefix) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: COLUMN webhook_endpoints.timeout; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(timeout) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: COLUMN webhook_endpoints.dev; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(dev) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: COLUMN webhook_endpoints.enabled; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(enabled) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: COLUMN webhook_endpoints.disabled_reason; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(disabled_reason) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: COLUMN webhook_endpoints.description; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(description) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: COLUMN webhook_endpoints.created_at; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(created_at) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: COLUMN webhook_endpoints.updated_at; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(updated_at) ON TABLE holdfast.webhook_endpoints TO holdfast_reader;


-- Name: FUNCTION check_endpoint(p_endpoint holdfast.webhook_endpoints); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.check_endpoint(p_endpoint holdfast.webhook_endpoints) FROM PUBLIC;


-- Name: FUNCTION check_filter_value(p_name text, p_value jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.check_filter_value(p_name text, p_value jsonb) FROM PUBLIC;


-- Name: FUNCTION check_job(p_task text, p_queue text, p_tenant text, p_priority integer, p_max_attempts integer, p_payload jsonb, p_run_at timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.check_job(p_task text, p_queue text, p_tenant text, p_priority integer, p_max_attempts integer, p_payload jsonb, p_run_at timestamp with time zone) FROM PUBLIC;


-- Name: FUNCTION check_keys(p_keys text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.check_keys(p_keys text[]) FROM PUBLIC;


-- Name: FUNCTION check_limit(p_key text, p_change jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.check_limit(p_key text, p_change jsonb) FROM PUBLIC;


-- Name: FUNCTION check_limit_key(p_key text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.check_limit_key(p_key text) FROM PUBLIC;


-- Name: FUNCTION child_result(p_job uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.child_result(p_job uuid) FROM PUBLIC;


-- Name: FUNCTION claim(p_worker text, p_queues text[], p_limit integer, p_ttl interval, p_after jsonb, p_asleep boolean, p_free integer, p_per_tenant integer, p_served jsonb, p_direct boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.claim(p_worker text, p_queues text[], p_limit integer, p_ttl interval, p_after jsonb, p_asleep boolean, p_free integer, p_per_tenant integer, p_served jsonb, p_direct boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.claim(p_worker text, p_queues text[], p_limit integer, p_ttl interval, p_after jsonb, p_asleep boolean, p_free integer, p_per_tenant integer, p_served jsonb, p_direct boolean) TO holdfast_worker;


-- Name: FUNCTION claim_found(p_claim holdfast.claim_state, p_places tid[], p_ids uuid[], p_held text[], p_deduped integer, p_direct boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.claim_found(p_claim holdfast.claim_state, p_places tid[], p_ids uuid[], p_held text[], p_deduped integer, p_direct boolean) FROM PUBLIC;


-- Name: FUNCTION claim_plain(p_claim holdfast.claim_state, p_queue text, p_priority integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.claim_plain(p_claim holdfast.claim_state, p_queue text, p_priority integer) FROM PUBLIC;


-- Name: FUNCTION claim_ring(p_claim holdfast.claim_state, p_queue text, p_priority integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.claim_ring(p_claim holdfast.claim_state, p_queue text, p_priority integer) FROM PUBLIC;


-- Name: FUNCTION claim_rings(p_queues text[], p_limit integer, p_after jsonb, p_free integer, p_per_tenant integer, p_served jsonb, p_direct boolean, p_due boolean, OUT p_claim holdfast.claim_state, OUT p_info json); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.claim_rings(p_queues text[], p_limit integer, p_after jsonb, p_free integer, p_per_tenant integer, p_served jsonb, p_direct boolean, p_due boolean, OUT p_claim holdfast.claim_state, OUT p_info json) FROM PUBLIC;


-- Name: FUNCTION claim_round(INOUT p_claim holdfast.claim_state, p_queue text, p_priority integer, p_direct boolean, p_room integer, p_plain boolean, p_least integer, INOUT p_front bigint, p_tag bigint, INOUT p_rest boolean, OUT flows integer, OUT got integer, OUT changed boolean, OUT plain_ends boolean, OUT settled boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.claim_round(INOUT p_claim holdfast.claim_state, p_queue text, p_priority integer, p_direct boolean, p_room integer, p_plain boolean, p_least integer, INOUT p_front bigint, p_tag bigint, INOUT p_rest boolean, OUT flows integer, OUT got integer, OUT changed boolean, OUT plain_ends boolean, OUT settled boolean) FROM PUBLIC;


-- Name: FUNCTION claimed_jobs(p_key text, p_limit integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.claimed_jobs(p_key text, p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.claimed_jobs(p_key text, p_limit integer) TO holdfast_reader;


-- Name: FUNCTION clear_limit(p_key text, p_by text, p_reason text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.clear_limit(p_key text, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.clear_limit(p_key text, p_by text, p_reason text) TO holdfast_service;


-- Name: FUNCTION clock(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.clock() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.clock() TO holdfast_reader;


-- Name: FUNCTION clock_lead(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.clock_lead() FROM PUBLIC;


-- Name: FUNCTION close_batch(p_batch uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.close_batch(p_batch uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.close_batch(p_batch uuid) TO holdfast_enqueue;


-- Name: FUNCTION close_claims(p_tokens bigint[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.close_claims(p_tokens bigint[]) FROM PUBLIC;


-- Name: FUNCTION close_minute(p_minute timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.close_minute(p_minute timestamp with time zone) FROM PUBLIC;


-- Name: FUNCTION compensate(p_id uuid, p_by text, p_reason text, p_tenant text, p_deliveries boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.compensate(p_id uuid, p_by text, p_reason text, p_tenant text, p_deliveries boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.compensate(p_id uuid, p_by text, p_reason text, p_tenant text, p_deliveries boolean) TO holdfast_service;


-- Name: FUNCTION complete_batches(p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.complete_batches(p_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.complete_batches(p_ids uuid[]) TO holdfast_worker;


-- Name: FUNCTION count_attempts(p_counted holdfast.counted[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.count_attempts(p_counted holdfast.counted[]) FROM PUBLIC;


-- Name: FUNCTION count_batch(p_batch uuid, p_added bigint, p_succeeded bigint, p_failed bigint, p_canceled bigint); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.count_batch(p_batch uuid, p_added bigint, p_succeeded bigint, p_failed bigint, p_canceled bigint) FROM PUBLIC;


-- Name: FUNCTION count_jobs(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.count_jobs() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.count_jobs() TO holdfast_reader;


-- Name: FUNCTION count_usage(p_used holdfast.used[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.count_usage(p_used holdfast.used[]) FROM PUBLIC;


-- Name: FUNCTION count_waiting(p_queues text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.count_waiting(p_queues text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.count_waiting(p_queues text[]) TO holdfast_worker;


-- Name: FUNCTION create_token(p_id uuid, p_name text, p_digest bytea, p_shown text, p_tenant text, p_scopes text[], p_lifetime interval, p_priority integer, p_rate double precision, p_by text, p_reason text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.create_token(p_id uuid, p_name text, p_digest bytea, p_shown text, p_tenant text, p_scopes text[], p_lifetime interval, p_priority integer, p_rate double precision, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.create_token(p_id uuid, p_name text, p_digest bytea, p_shown text, p_tenant text, p_scopes text[], p_lifetime interval, p_priority integer, p_rate double precision, p_by text, p_reason text) TO holdfast_admin;


-- Name: FUNCTION current_timeline(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.current_timeline() FROM PUBLIC;


-- Name: FUNCTION delivery_id(p_event uuid, p_endpoint uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.delivery_id(p_event uuid, p_endpoint uuid) FROM PUBLIC;


-- Name: FUNCTION delivery_keys(p_endpoint uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.delivery_keys(p_endpoint uuid) FROM PUBLIC;


-- Name: FUNCTION disable_endpoint(p_id uuid, p_reason text, p_url text, p_by text, p_view_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.disable_endpoint(p_id uuid, p_reason text, p_url text, p_by text, p_view_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.disable_endpoint(p_id uuid, p_reason text, p_url text, p_by text, p_view_tenant text) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.disable_endpoint(p_id uuid, p_reason text, p_url text, p_by text, p_view_tenant text) TO holdfast_service;


-- Name: FUNCTION discard_dead(p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.discard_dead(p_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.discard_dead(p_ids uuid[]) TO holdfast_service;


-- Name: FUNCTION edit_job(p_id uuid, p_args jsonb, p_expected jsonb, p_keys text[], p_by text, p_reason text, p_tenant text, p_deliveries boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.edit_job(p_id uuid, p_args jsonb, p_expected jsonb, p_keys text[], p_by text, p_reason text, p_tenant text, p_deliveries boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.edit_job(p_id uuid, p_args jsonb, p_expected jsonb, p_keys text[], p_by text, p_reason text, p_tenant text, p_deliveries boolean) TO holdfast_service;


-- Name: FUNCTION emit(p_channel text, p_payload jsonb, p_key text, p_tenant text, p_order text, p_queue text, p_priority integer, p_max_attempts integer, p_retry jsonb, p_id uuid, p_headers json, p_keys text[], OUT id uuid, OUT outcome text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.emit(p_channel text, p_payload jsonb, p_key text, p_tenant text, p_order text, p_queue text, p_priority integer, p_max_attempts integer, p_retry jsonb, p_id uuid, p_headers json, p_keys text[], OUT id uuid, OUT outcome text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.emit(p_channel text, p_payload jsonb, p_key text, p_tenant text, p_order text, p_queue text, p_priority integer, p_max_attempts integer, p_retry jsonb, p_id uuid, p_headers json, p_keys text[], OUT id uuid, OUT outcome text) TO holdfast_enqueue;


-- Name: FUNCTION end_job_waits(p_job uuid, p_status text, p_limit integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.end_job_waits(p_job uuid, p_status text, p_limit integer) FROM PUBLIC;


-- Name: FUNCTION end_parent_waits(p_ref uuid, p_result json); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.end_parent_waits(p_ref uuid, p_result json) FROM PUBLIC;


-- Name: FUNCTION end_under_limits(p_ended holdfast.released[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.end_under_limits(p_ended holdfast.released[]) FROM PUBLIC;


-- Name: TABLE steps; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.steps TO holdfast_reader;


-- Name: FUNCTION end_wait(p_step holdfast.steps); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.end_wait(p_step holdfast.steps) FROM PUBLIC;


-- Name: FUNCTION enqueue(p_task text, p_payload jsonb, p_queue text, p_id uuid, p_tenant text, p_priority integer, p_delay interval, p_run_at timestamp with time zone, p_max_attempts integer, p_retry jsonb, p_dedupe_key text, p_dedupe_scope holdfast.dedupe_scope, p_dedupe_keep interval, p_on_conflict text, p_fresh boolean, p_deadline interval, p_batch uuid, p_headers json, p_counted boolean, p_keys text[], p_after uuid[], p_on_failure text, OUT id uuid, OUT outcome text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.enqueue(p_task text, p_payload jsonb, p_queue text, p_id uuid, p_tenant text, p_priority integer, p_delay interval, p_run_at timestamp with time zone, p_max_attempts integer, p_retry jsonb, p_dedupe_key text, p_dedupe_scope holdfast.dedupe_scope, p_dedupe_keep interval, p_on_conflict text, p_fresh boolean, p_deadline interval, p_batch uuid, p_headers json, p_counted boolean, p_keys text[], p_after uuid[], p_on_failure text, OUT id uuid, OUT outcome text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.enqueue(p_task text, p_payload jsonb, p_queue text, p_id uuid, p_tenant text, p_priority integer, p_delay interval, p_run_at timestamp with time zone, p_max_attempts integer, p_retry jsonb, p_dedupe_key text, p_dedupe_scope holdfast.dedupe_scope, p_dedupe_keep interval, p_on_conflict text, p_fresh boolean, p_deadline interval, p_batch uuid, p_headers json, p_counted boolean, p_keys text[], p_after uuid[], p_on_failure text, OUT id uuid, OUT outcome text) TO holdfast_enqueue;


-- Name: FUNCTION enqueue_many(p_jobs jsonb, p_on_conflict text, p_fresh boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.enqueue_many(p_jobs jsonb, p_on_conflict text, p_fresh boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.enqueue_many(p_jobs jsonb, p_on_conflict text, p_fresh boolean) TO holdfast_enqueue;


-- Name: FUNCTION error_in_words(p_error jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.error_in_words(p_error jsonb) FROM PUBLIC;


-- Name: FUNCTION expire(p_limit integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.expire(p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.expire(p_limit integer) TO holdfast_worker;


-- Name: FUNCTION fail(p_id uuid, p_token bigint, p_error jsonb, p_delay interval, p_outcome text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.fail(p_id uuid, p_token bigint, p_error jsonb, p_delay interval, p_outcome text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.fail(p_id uuid, p_token bigint, p_error jsonb, p_delay interval, p_outcome text) TO holdfast_worker;


-- Name: FUNCTION figures(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.figures() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.figures() TO holdfast_reader;


-- Name: FUNCTION fingerprint_of(p_task text, p_error jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.fingerprint_of(p_task text, p_error jsonb) FROM PUBLIC;


-- Name: FUNCTION finish(p_ids uuid[], p_tokens bigint[], p_outcomes jsonb, p_closed bigint[], p_locked text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.finish(p_ids uuid[], p_tokens bigint[], p_outcomes jsonb, p_closed bigint[], p_locked text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.finish(p_ids uuid[], p_tokens bigint[], p_outcomes jsonb, p_closed bigint[], p_locked text) TO holdfast_worker;


-- Name: FUNCTION fire_schedules(p_fires jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.fire_schedules(p_fires jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.fire_schedules(p_fires jsonb) TO holdfast_worker;


-- Name: FUNCTION first_of_order(p_queue text, p_lane bigint, p_at timestamp with time zone, p_id uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.first_of_order(p_queue text, p_lane bigint, p_at timestamp with time zone, p_id uuid) FROM PUBLIC;


-- Name: FUNCTION fold_arrivals(p_queue text, p_token bigint); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.fold_arrivals(p_queue text, p_token bigint) FROM PUBLIC;


-- Name: FUNCTION fold_errors(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.fold_errors() FROM PUBLIC;


-- Name: FUNCTION fold_releases(p_token bigint); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.fold_releases(p_token bigint) FROM PUBLIC;


-- Name: FUNCTION fold_usage(p_limit integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.fold_usage(p_limit integer) FROM PUBLIC;


-- Name: FUNCTION follow(p_id uuid, p_pending uuid[], p_failed uuid[], p_on_failure text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.follow(p_id uuid, p_pending uuid[], p_failed uuid[], p_on_failure text) FROM PUBLIC;


-- Name: FUNCTION forget_sleepers(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.forget_sleepers() FROM PUBLIC;


-- Name: FUNCTION free_dedupe_keys(p_keys text[], p_ids uuid[], p_succeeded boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.free_dedupe_keys(p_keys text[], p_ids uuid[], p_succeeded boolean) FROM PUBLIC;


-- Name: FUNCTION free_jobs(p_ids uuid[], p_dead boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.free_jobs(p_ids uuid[], p_dead boolean) FROM PUBLIC;


-- Name: FUNCTION free_keys(p_keys text[], p_held text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.free_keys(p_keys text[], p_held text[]) FROM PUBLIC;


-- Name: FUNCTION has_args(p_payload json, p_args jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.has_args(p_payload json, p_args jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.has_args(p_payload json, p_args jsonb) TO holdfast_reader;


-- Name: FUNCTION has_plain(p_claim holdfast.claim_state, p_queue text, p_priority integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.has_plain(p_claim holdfast.claim_state, p_queue text, p_priority integer) FROM PUBLIC;


-- Name: FUNCTION held_jobs(p_ids uuid[], p_tokens bigint[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.held_jobs(p_ids uuid[], p_tokens bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.held_jobs(p_ids uuid[], p_tokens bigint[]) TO holdfast_worker;


-- Name: FUNCTION hold_ended(p_job uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.hold_ended(p_job uuid) FROM PUBLIC;


-- Name: FUNCTION idempotency_key(p_channel text, p_tenant text, p_key text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.idempotency_key(p_channel text, p_tenant text, p_key text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.idempotency_key(p_channel text, p_tenant text, p_key text) TO holdfast_reader;


-- Name: FUNCTION in_words(p_time interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.in_words(p_time interval) FROM PUBLIC;


-- Name: FUNCTION is_alive(p_worker text, p_heartbeat_at timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.is_alive(p_worker text, p_heartbeat_at timestamp with time zone) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.is_alive(p_worker text, p_heartbeat_at timestamp with time zone) TO holdfast_reader;


-- Name: FUNCTION is_followed(p_job uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.is_followed(p_job uuid) FROM PUBLIC;


-- Name: FUNCTION is_time(p_value jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.is_time(p_value jsonb) FROM PUBLIC;


-- Name: FUNCTION job_marks(p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.job_marks(p_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.job_marks(p_ids uuid[]) TO holdfast_reader;


-- Name: FUNCTION keep_result(p_id uuid, p_result jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.keep_result(p_id uuid, p_result jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.keep_result(p_id uuid, p_result jsonb) TO holdfast_worker;


-- Name: FUNCTION kind_of(p_key text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.kind_of(p_key text) FROM PUBLIC;


-- Name: FUNCTION lane_of(p_tenant text, p_keys text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.lane_of(p_tenant text, p_keys text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.lane_of(p_tenant text, p_keys text[]) TO holdfast_enqueue;


-- Name: FUNCTION last_job(p_dead boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.last_job(p_dead boolean) FROM PUBLIC;


-- Name: FUNCTION level_of(p_metric text, p_value double precision); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.level_of(p_metric text, p_value double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.level_of(p_metric text, p_value double precision) TO holdfast_reader;


-- Name: FUNCTION limited_tasks(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.limited_tasks() FROM PUBLIC;


-- Name: FUNCTION lock_errors(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.lock_errors() FROM PUBLIC;


-- Name: FUNCTION lock_predecessors(p_ids uuid[], OUT pending uuid[], OUT failed uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.lock_predecessors(p_ids uuid[], OUT pending uuid[], OUT failed uuid[]) FROM PUBLIC;


-- Name: FUNCTION lock_ring(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.lock_ring() FROM PUBLIC;


-- Name: FUNCTION locked_blocks(p_keys text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.locked_blocks(p_keys text[]) FROM PUBLIC;


-- Name: FUNCTION look_at(p_ids uuid[], p_everyone boolean[], p_who text[], p_deliveries boolean[], OUT place bigint, OUT id uuid, OUT task text, OUT tenant text, OUT queue text, OUT priority smallint, OUT payload json, OUT status text, OUT attempts smallint, OUT max_attempts smallint, OUT run_at timestamp with time zone, OUT created_at timestamp with time zone, OUT started_at timestamp with time zone, OUT finished_at timestamp with time zone, OUT error jsonb, OUT result jsonb, OUT batch uuid, OUT deadline timestamp with time zone, OUT progress jsonb, OUT waits_for text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.look_at(p_ids uuid[], p_everyone boolean[], p_who text[], p_deliveries boolean[], OUT place bigint, OUT id uuid, OUT task text, OUT tenant text, OUT queue text, OUT priority smallint, OUT payload json, OUT status text, OUT attempts smallint, OUT max_attempts smallint, OUT run_at timestamp with time zone, OUT created_at timestamp with time zone, OUT started_at timestamp with time zone, OUT finished_at timestamp with time zone, OUT error jsonb, OUT result jsonb, OUT batch uuid, OUT deadline timestamp with time zone, OUT progress jsonb, OUT waits_for text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.look_at(p_ids uuid[], p_everyone boolean[], p_who text[], p_deliveries boolean[], OUT place bigint, OUT id uuid, OUT task text, OUT tenant text, OUT queue text, OUT priority smallint, OUT payload json, OUT status text, OUT attempts smallint, OUT max_attempts smallint, OUT run_at timestamp with time zone, OUT created_at timestamp with time zone, OUT started_at timestamp with time zone, OUT finished_at timestamp with time zone, OUT error jsonb, OUT result jsonb, OUT batch uuid, OUT deadline timestamp with time zone, OUT progress jsonb, OUT waits_for text) TO holdfast_reader;


-- Name: FUNCTION make_change(p_kind text, p_params jsonb, p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.make_change(p_kind text, p_params jsonb, p_ids uuid[]) FROM PUBLIC;


-- Name: FUNCTION make_error_groups(p_failed holdfast.failed[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.make_error_groups(p_failed holdfast.failed[]) FROM PUBLIC;


-- Name: FUNCTION make_limits(p_keys text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.make_limits(p_keys text[]) FROM PUBLIC;


-- Name: FUNCTION make_partitions(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.make_partitions() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.make_partitions() TO holdfast_worker;


-- Name: FUNCTION mark_started(p_ids uuid[], p_tokens bigint[], p_ago double precision[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.mark_started(p_ids uuid[], p_tokens bigint[], p_ago double precision[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.mark_started(p_ids uuid[], p_tokens bigint[], p_ago double precision[]) TO holdfast_worker;


-- Name: FUNCTION matching_jobs(p_where holdfast.job_filter, p_before timestamp with time zone, p_ids uuid[], p_tenant text, p_deliveries boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.matching_jobs(p_where holdfast.job_filter, p_before timestamp with time zone, p_ids uuid[], p_tenant text, p_deliveries boolean) FROM PUBLIC;


-- Name: FUNCTION may_see(p_everyone boolean, p_who text, p_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.may_see(p_everyone boolean, p_who text, p_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.may_see(p_everyone boolean, p_who text, p_tenant text) TO holdfast_reader;


-- Name: FUNCTION move_fold(p_queue text, p_from xid8, p_open xid8[], p_token bigint, p_rows integer, p_most integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.move_fold(p_queue text, p_from xid8, p_open xid8[], p_token bigint, p_rows integer, p_most integer) FROM PUBLIC;


-- Name: FUNCTION move_jobs(p_places tid[], p_tasks text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.move_jobs(p_places tid[], p_tasks text[]) FROM PUBLIC;


-- Name: FUNCTION next_jobs(p_where holdfast.job_filter, p_from uuid, p_except uuid, p_to uuid, p_most integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.next_jobs(p_where holdfast.job_filter, p_from uuid, p_except uuid, p_to uuid, p_most integer) FROM PUBLIC;


-- Name: FUNCTION next_schedules(p_limit integer, p_except text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.next_schedules(p_limit integer, p_except text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.next_schedules(p_limit integer, p_except text[]) TO holdfast_worker;


-- Name: FUNCTION next_token(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.next_token() FROM PUBLIC;


-- Name: FUNCTION note_block(p_key text, p_reason text, p_job uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.note_block(p_key text, p_reason text, p_job uuid) FROM PUBLIC;


-- Name: FUNCTION note_capped(p_queues text[], p_before jsonb, p_claim holdfast.claim_state); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.note_capped(p_queues text[], p_before jsonb, p_claim holdfast.claim_state) FROM PUBLIC;


-- Name: FUNCTION note_timeline(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.note_timeline() FROM PUBLIC;


-- Name: FUNCTION open_batch(p_id uuid, p_name text, p_tenant text, p_on_done jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.open_batch(p_id uuid, p_name text, p_tenant text, p_on_done jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.open_batch(p_id uuid, p_name text, p_tenant text, p_on_done jsonb) TO holdfast_enqueue;


-- Name: FUNCTION open_flows(p_flows jsonb, p_token bigint); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.open_flows(p_flows jsonb, p_token bigint) FROM PUBLIC;


-- Name: FUNCTION orders_of(p_keys text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.orders_of(p_keys text[]) FROM PUBLIC;


-- Name: FUNCTION other_errors(p_task text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.other_errors(p_task text) FROM PUBLIC;


-- Name: FUNCTION page_floor(p_before uuid, p_jobs integer, p_places text[], p_messages boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.page_floor(p_before uuid, p_jobs integer, p_places text[], p_messages boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.page_floor(p_before uuid, p_jobs integer, p_places text[], p_messages boolean) TO holdfast_reader;


-- Name: FUNCTION park(INOUT p_outcomes jsonb, INOUT p_places tid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.park(INOUT p_outcomes jsonb, INOUT p_places tid[]) FROM PUBLIC;


-- Name: FUNCTION pause(p_key text, p_by text, p_reason text, p_for interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.pause(p_key text, p_by text, p_reason text, p_for interval) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.pause(p_key text, p_by text, p_reason text, p_for interval) TO holdfast_service;


-- Name: FUNCTION pause_schedule(p_name text, p_paused boolean, p_by text, p_reason text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.pause_schedule(p_name text, p_paused boolean, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.pause_schedule(p_name text, p_paused boolean, p_by text, p_reason text) TO holdfast_admin;


-- Name: FUNCTION preview_action(p_kind text, p_filter jsonb, p_params jsonb, p_tenant text, p_deliveries boolean, p_within interval, OUT matching integer, OUT complete boolean, OUT examples uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.preview_action(p_kind text, p_filter jsonb, p_params jsonb, p_tenant text, p_deliveries boolean, p_within interval, OUT matching integer, OUT complete boolean, OUT examples uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.preview_action(p_kind text, p_filter jsonb, p_params jsonb, p_tenant text, p_deliveries boolean, p_within interval, OUT matching integer, OUT complete boolean, OUT examples uuid[]) TO holdfast_service;


-- Name: FUNCTION process_endings(p_own boolean, p_limit integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.process_endings(p_own boolean, p_limit integer) FROM PUBLIC;


-- Name: FUNCTION promote(p_limit integer, p_since interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.promote(p_limit integer, p_since interval) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.promote(p_limit integer, p_since interval) TO holdfast_worker;


-- Name: FUNCTION prune(p_limit integer, OUT partitions_dropped integer, OUT rows_removed integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.prune(p_limit integer, OUT partitions_dropped integer, OUT rows_removed integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.prune(p_limit integer, OUT partitions_dropped integer, OUT rows_removed integer) TO holdfast_worker;


-- Name: FUNCTION prune_errors(p_limit integer, p_oldest timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.prune_errors(p_limit integer, p_oldest timestamp with time zone) FROM PUBLIC;


-- Name: FUNCTION prune_limits(p_limit integer, p_oldest timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.prune_limits(p_limit integer, p_oldest timestamp with time zone) FROM PUBLIC;


-- Name: FUNCTION prune_steps(p_limit integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.prune_steps(p_limit integer) FROM PUBLIC;


-- Name: FUNCTION publish_event(p_type text, p_body text, p_tenant text, p_event uuid, p_key text, p_priority integer, p_max_attempts integer, p_retry jsonb, p_fresh boolean, OUT event uuid, OUT deliveries uuid[], OUT outcome text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.publish_event(p_type text, p_body text, p_tenant text, p_event uuid, p_key text, p_priority integer, p_max_attempts integer, p_retry jsonb, p_fresh boolean, OUT event uuid, OUT deliveries uuid[], OUT outcome text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.publish_event(p_type text, p_body text, p_tenant text, p_event uuid, p_key text, p_priority integer, p_max_attempts integer, p_retry jsonb, p_fresh boolean, OUT event uuid, OUT deliveries uuid[], OUT outcome text) TO holdfast_enqueue;


-- Name: FUNCTION read_body(p_id uuid, p_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.read_body(p_id uuid, p_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.read_body(p_id uuid, p_tenant text) TO holdfast_worker;


-- Name: FUNCTION read_endpoint(p_id uuid, OUT tenant text, OUT url text, OUT prefix text, OUT timeout double precision, OUT dev boolean, OUT enabled boolean, OUT disabled_reason text, OUT secrets text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.read_endpoint(p_id uuid, OUT tenant text, OUT url text, OUT prefix text, OUT timeout double precision, OUT dev boolean, OUT enabled boolean, OUT disabled_reason text, OUT secrets text[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.read_endpoint(p_id uuid, OUT tenant text, OUT url text, OUT prefix text, OUT timeout double precision, OUT dev boolean, OUT enabled boolean, OUT disabled_reason text, OUT secrets text[]) TO holdfast_worker;


-- Name: FUNCTION read_filter(p_filter jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.read_filter(p_filter jsonb) FROM PUBLIC;


-- Name: FUNCTION read_steps(p_ids uuid[], p_tokens bigint[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.read_steps(p_ids uuid[], p_tokens bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.read_steps(p_ids uuid[], p_tokens bigint[]) TO holdfast_worker;


-- Name: FUNCTION reclaim(p_limit integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.reclaim(p_limit integer) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.reclaim(p_limit integer) TO holdfast_worker;


-- Name: FUNCTION reclaim_orphans(p_pages integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.reclaim_orphans(p_pages integer) FROM PUBLIC;


-- Name: FUNCTION reclaim_worker(p_worker text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.reclaim_worker(p_worker text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.reclaim_worker(p_worker text) TO holdfast_worker;


-- Name: FUNCTION reconcile_limits(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.reconcile_limits() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.reconcile_limits() TO holdfast_admin;


-- Name: FUNCTION record_action(p_kind text, p_target text, p_by text, p_reason text, p_before jsonb, p_after jsonb, p_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.record_action(p_kind text, p_target text, p_by text, p_reason text, p_before jsonb, p_after jsonb, p_tenant text) FROM PUBLIC;


-- Name: FUNCTION record_breakers(p_changes holdfast.breaker_change[], p_by text, p_reason text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.record_breakers(p_changes holdfast.breaker_change[], p_by text, p_reason text) FROM PUBLIC;


-- Name: FUNCTION record_tick(p_worker text, p_queues text[], p_seconds double precision, p_claimed integer, p_processed integer, p_succeeded integer, p_failed integer, p_throttled integer, p_contention integer, p_tenants jsonb, p_kind text, p_depth_at_start bigint, OUT id uuid, OUT depth bigint); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.record_tick(p_worker text, p_queues text[], p_seconds double precision, p_claimed integer, p_processed integer, p_succeeded integer, p_failed integer, p_throttled integer, p_contention integer, p_tenants jsonb, p_kind text, p_depth_at_start bigint, OUT id uuid, OUT depth bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.record_tick(p_worker text, p_queues text[], p_seconds double precision, p_claimed integer, p_processed integer, p_succeeded integer, p_failed integer, p_throttled integer, p_contention integer, p_tenants jsonb, p_kind text, p_depth_at_start bigint, OUT id uuid, OUT depth bigint) TO holdfast_worker;


-- Name: FUNCTION redeliver(p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.redeliver(p_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.redeliver(p_ids uuid[]) TO holdfast_service;


-- Name: FUNCTION register_limits(p_rules jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.register_limits(p_rules jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.register_limits(p_rules jsonb) TO holdfast_worker;


-- Name: FUNCTION register_schedules(p_schedules jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.register_schedules(p_schedules jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.register_schedules(p_schedules jsonb) TO holdfast_worker;


-- Name: FUNCTION register_worker(p_worker text, p_host text, p_pid integer, p_version text, p_queues text[], p_concurrency integer, p_tasks jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.register_worker(p_worker text, p_host text, p_pid integer, p_version text, p_queues text[], p_concurrency integer, p_tasks jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.register_worker(p_worker text, p_host text, p_pid integer, p_version text, p_queues text[], p_concurrency integer, p_tasks jsonb) TO holdfast_worker;


-- Name: FUNCTION release(p_ids uuid[], p_tokens bigint[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.release(p_ids uuid[], p_tokens bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.release(p_ids uuid[], p_tokens bigint[]) TO holdfast_worker;


-- Name: FUNCTION release_limits(p_freed holdfast.freed[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.release_limits(p_freed holdfast.freed[]) FROM PUBLIC;


-- Name: FUNCTION remove_endpoint(p_id uuid, p_by text, p_reason text, p_view_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.remove_endpoint(p_id uuid, p_by text, p_reason text, p_view_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.remove_endpoint(p_id uuid, p_by text, p_reason text, p_view_tenant text) TO holdfast_service;


-- Name: FUNCTION remove_schedule(p_name text, p_by text, p_reason text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.remove_schedule(p_name text, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.remove_schedule(p_name text, p_by text, p_reason text) TO holdfast_admin;


-- Name: FUNCTION renew(p_worker text, p_tokens bigint[], p_ttl interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.renew(p_worker text, p_tokens bigint[], p_ttl interval) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.renew(p_worker text, p_tokens bigint[], p_ttl interval) TO holdfast_worker;


-- Name: FUNCTION reopen_lanes(p_keys text[], p_token bigint); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.reopen_lanes(p_keys text[], p_token bigint) FROM PUBLIC;


-- Name: FUNCTION reopen_waits(p_jobs uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.reopen_waits(p_jobs uuid[]) FROM PUBLIC;


-- Name: FUNCTION report_log(p_reports jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.report_log(p_reports jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.report_log(p_reports jsonb) TO holdfast_worker;


-- Name: FUNCTION report_progress(p_reports jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.report_progress(p_reports jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.report_progress(p_reports jsonb) TO holdfast_worker;


-- Name: FUNCTION requeue_dead(p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.requeue_dead(p_ids uuid[]) FROM PUBLIC;


-- Name: FUNCTION rerun(p_id uuid, p_from text, p_keys text[], p_by text, p_reason text, p_tenant text, p_deliveries boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.rerun(p_id uuid, p_from text, p_keys text[], p_by text, p_reason text, p_tenant text, p_deliveries boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.rerun(p_id uuid, p_from text, p_keys text[], p_by text, p_reason text, p_tenant text, p_deliveries boolean) TO holdfast_service;


-- Name: FUNCTION reschedule_jobs(p_ids uuid[], p_run_at timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.reschedule_jobs(p_ids uuid[], p_run_at timestamp with time zone) FROM PUBLIC;


-- Name: FUNCTION reset_breaker(p_key text, p_by text, p_reason text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.reset_breaker(p_key text, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.reset_breaker(p_key text, p_by text, p_reason text) TO holdfast_service;


-- Name: FUNCTION resolve_duplicate(p_key text, p_holder uuid, p_task text, p_tenant text, p_payload jsonb, p_on_conflict text, p_keys text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.resolve_duplicate(p_key text, p_holder uuid, p_task text, p_tenant text, p_payload jsonb, p_on_conflict text, p_keys text[]) FROM PUBLIC;


-- Name: FUNCTION resume(p_key text, p_by text, p_reason text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.resume(p_key text, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.resume(p_key text, p_by text, p_reason text) TO holdfast_service;


-- Name: FUNCTION resume_jobs(p_ids uuid[], p_waits text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.resume_jobs(p_ids uuid[], p_waits text[]) FROM PUBLIC;


-- Name: FUNCTION retry_dead(p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.retry_dead(p_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.retry_dead(p_ids uuid[]) TO holdfast_service;


-- Name: FUNCTION retry_delay(p_policy jsonb, p_attempt integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.retry_delay(p_policy jsonb, p_attempt integer) FROM PUBLIC;


-- Name: FUNCTION revoke_token(p_id uuid, p_by text, p_reason text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.revoke_token(p_id uuid, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.revoke_token(p_id uuid, p_by text, p_reason text) TO holdfast_admin;


-- Name: FUNCTION ring_has_work(p_queues text[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.ring_has_work(p_queues text[]) FROM PUBLIC;


-- Name: FUNCTION rotate_secret(p_id uuid, p_secret text, p_keep interval, p_by text, p_reason text, p_view_tenant text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.rotate_secret(p_id uuid, p_secret text, p_keep interval, p_by text, p_reason text, p_view_tenant text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.rotate_secret(p_id uuid, p_secret text, p_keep interval, p_by text, p_reason text, p_view_tenant text) TO holdfast_service;


-- Name: FUNCTION rule_of(p_key text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.rule_of(p_key text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.rule_of(p_key text) TO holdfast_reader;


-- Name: FUNCTION run_schedule(p_name text, p_id uuid, p_by text, p_reason text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.run_schedule(p_name text, p_id uuid, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.run_schedule(p_name text, p_id uuid, p_by text, p_reason text) TO holdfast_admin;


-- Name: FUNCTION sample_jobs(p_table regclass, p_pages integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.sample_jobs(p_table regclass, p_pages integer) FROM PUBLIC;


-- Name: FUNCTION sample_names(p_table regclass, p_pages integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.sample_names(p_table regclass, p_pages integer) FROM PUBLIC;


-- Name: FUNCTION scan_jobs(p_where holdfast.job_filter, p_before timestamp with time zone, p_from uuid, p_except uuid, p_to uuid, p_most integer, p_tenant text, p_deliveries boolean, OUT ids uuid[], OUT last_id uuid, OUT scanned integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.scan_jobs(p_where holdfast.job_filter, p_before timestamp with time zone, p_from uuid, p_except uuid, p_to uuid, p_most integer, p_tenant text, p_deliveries boolean, OUT ids uuid[], OUT last_id uuid, OUT scanned integer) FROM PUBLIC;


-- Name: FUNCTION seen_jobs(p_everyone boolean, p_who text, p_deliveries boolean, p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.seen_jobs(p_everyone boolean, p_who text, p_deliveries boolean, p_ids uuid[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.seen_jobs(p_everyone boolean, p_who text, p_deliveries boolean, p_ids uuid[]) TO holdfast_reader;


-- Name: FUNCTION set_limit(p_key text, p_change jsonb, p_by text, p_reason text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.set_limit(p_key text, p_change jsonb, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.set_limit(p_key text, p_change jsonb, p_by text, p_reason text) TO holdfast_service;


-- Name: FUNCTION settle(p_outcomes jsonb, p_worker text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.settle(p_outcomes jsonb, p_worker text) FROM PUBLIC;


-- Name: FUNCTION shown_endpoint(p_endpoint holdfast.webhook_endpoints); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.shown_endpoint(p_endpoint holdfast.webhook_endpoints) FROM PUBLIC;


-- Name: FUNCTION signal(p_name text, p_value jsonb, p_tenant text, p_keep interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.signal(p_name text, p_value jsonb, p_tenant text, p_keep interval) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.signal(p_name text, p_value jsonb, p_tenant text, p_keep interval) TO holdfast_enqueue;


-- Name: FUNCTION signal_key(p_tenant text, p_name text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.signal_key(p_tenant text, p_name text) FROM PUBLIC;


-- Name: FUNCTION sleep(p_worker text, p_queues text[], p_listens boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.sleep(p_worker text, p_queues text[], p_listens boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.sleep(p_worker text, p_queues text[], p_listens boolean) TO holdfast_worker;


-- Name: FUNCTION snooze(p_id uuid, p_token bigint, p_delay interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.snooze(p_id uuid, p_token bigint, p_delay interval) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.snooze(p_id uuid, p_token bigint, p_delay interval) TO holdfast_worker;


-- Name: FUNCTION start_action(p_kind text, p_filter jsonb, p_ids uuid[], p_params jsonb, p_by text, p_reason text, p_tenant text, p_deliveries boolean, p_id uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.start_action(p_kind text, p_filter jsonb, p_ids uuid[], p_params jsonb, p_by text, p_reason text, p_tenant text, p_deliveries boolean, p_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.start_action(p_kind text, p_filter jsonb, p_ids uuid[], p_params jsonb, p_by text, p_reason text, p_tenant text, p_deliveries boolean, p_id uuid) TO holdfast_service;


-- Name: FUNCTION start_batch(p_id uuid, p_token bigint, p_name text, p_batch uuid, p_tenant text, p_detail jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.start_batch(p_id uuid, p_token bigint, p_name text, p_batch uuid, p_tenant text, p_detail jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.start_batch(p_id uuid, p_token bigint, p_name text, p_batch uuid, p_tenant text, p_detail jsonb) TO holdfast_worker;


-- Name: FUNCTION start_child(p_id uuid, p_token bigint, p_name text, p_job jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.start_child(p_id uuid, p_token bigint, p_name text, p_job jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.start_child(p_id uuid, p_token bigint, p_name text, p_job jsonb) TO holdfast_worker;


-- Name: FUNCTION step_action(p_action holdfast.actions, p_until timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.step_action(p_action holdfast.actions, p_until timestamp with time zone) FROM PUBLIC;


-- Name: FUNCTION stop_worker(p_worker text, p_now boolean, p_by text, p_reason text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.stop_worker(p_worker text, p_now boolean, p_by text, p_reason text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.stop_worker(p_worker text, p_now boolean, p_by text, p_reason text) TO holdfast_service;


-- Name: FUNCTION store_response(p_owner text, p_key text, p_status smallint, p_body text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.store_response(p_owner text, p_key text, p_status smallint, p_body text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.store_response(p_owner text, p_key text, p_status smallint, p_body text) TO holdfast_service;


-- Name: FUNCTION store_step_result(p_id uuid, p_token bigint, p_name text, p_result json, p_undo jsonb); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.store_step_result(p_id uuid, p_token bigint, p_name text, p_result json, p_undo jsonb) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.store_step_result(p_id uuid, p_token bigint, p_name text, p_result json, p_undo jsonb) TO holdfast_worker;


-- Name: FUNCTION store_steps(p_steps json, p_hold boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.store_steps(p_steps json, p_hold boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.store_steps(p_steps json, p_hold boolean) TO holdfast_worker;


-- Name: FUNCTION take_back_keys(p_keys text[], p_ids uuid[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.take_back_keys(p_keys text[], p_ids uuid[]) FROM PUBLIC;


-- Name: FUNCTION take_dedupe_key(p_key text, p_id uuid, p_scope holdfast.dedupe_scope, p_keep interval, p_until timestamp with time zone, OUT holder uuid, OUT taken boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.take_dedupe_key(p_key text, p_id uuid, p_scope holdfast.dedupe_scope, p_keep interval, p_until timestamp with time zone, OUT holder uuid, OUT taken boolean) FROM PUBLIC;


-- Name: FUNCTION take_lead(p_chore text, p_worker text, p_ttl interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.take_lead(p_chore text, p_worker text, p_ttl interval) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.take_lead(p_chore text, p_worker text, p_ttl interval) TO holdfast_worker;


-- Name: FUNCTION take_outbox_key(p_channel text, p_tenant text, p_key text, p_id uuid, OUT holder uuid, OUT taken boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.take_outbox_key(p_channel text, p_tenant text, p_key text, p_id uuid, OUT holder uuid, OUT taken boolean) FROM PUBLIC;


-- Name: FUNCTION take_snapshot(p_after interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.take_snapshot(p_after interval) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.take_snapshot(p_after interval) TO holdfast_worker;


-- Name: FUNCTION test_endpoint(p_id uuid, p_body text, p_event uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.test_endpoint(p_id uuid, p_body text, p_event uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.test_endpoint(p_id uuid, p_body text, p_event uuid) TO holdfast_service;


-- Name: FUNCTION times_accepted(p_id uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.times_accepted(p_id uuid) FROM PUBLIC;


-- Name: FUNCTION touch_limit(p_key text, p_probe integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.touch_limit(p_key text, p_probe integer) FROM PUBLIC;


-- Name: FUNCTION undo_ended(p_job uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.undo_ended(p_job uuid) FROM PUBLIC;


-- Name: FUNCTION undo_steps(p_job uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.undo_steps(p_job uuid) FROM PUBLIC;


-- Name: FUNCTION unregister_worker(p_worker text, p_gone boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.unregister_worker(p_worker text, p_gone boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.unregister_worker(p_worker text, p_gone boolean) TO holdfast_worker;


-- Name: FUNCTION unsent_jobs(p_before timestamp with time zone, p_most integer); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.unsent_jobs(p_before timestamp with time zone, p_most integer) FROM PUBLIC;


-- Name: FUNCTION upkeep(p_worker text, p_ttl interval, OUT term bigint, OUT promoted integer, OUT reclaimed jsonb, OUT expired integer, OUT next_slot double precision, OUT acting boolean, OUT known boolean, OUT asleep boolean, OUT stop text); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.upkeep(p_worker text, p_ttl interval, OUT term bigint, OUT promoted integer, OUT reclaimed jsonb, OUT expired integer, OUT next_slot double precision, OUT acting boolean, OUT known boolean, OUT asleep boolean, OUT stop text) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.upkeep(p_worker text, p_ttl interval, OUT term bigint, OUT promoted integer, OUT reclaimed jsonb, OUT expired integer, OUT next_slot double precision, OUT acting boolean, OUT known boolean, OUT asleep boolean, OUT stop text) TO holdfast_worker;


-- Name: FUNCTION use_token(p_digest bytea, OUT id uuid, OUT name text, OUT tenant text, OUT scopes text[], OUT seconds_left double precision, OUT priority smallint, OUT rate double precision); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.use_token(p_digest bytea, OUT id uuid, OUT name text, OUT tenant text, OUT scopes text[], OUT seconds_left double precision, OUT priority smallint, OUT rate double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.use_token(p_digest bytea, OUT id uuid, OUT name text, OUT tenant text, OUT scopes text[], OUT seconds_left double precision, OUT priority smallint, OUT rate double precision) TO holdfast_service;


-- Name: FUNCTION uuid7(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.uuid7() FROM PUBLIC;


-- Name: FUNCTION wait_at(p_steps smallint[], p_counts double precision[], p_share double precision); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.wait_at(p_steps smallint[], p_counts double precision[], p_share double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.wait_at(p_steps smallint[], p_counts double precision[], p_share double precision) TO holdfast_reader;


-- Name: FUNCTION wait_step(p_seconds double precision); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.wait_step(p_seconds double precision) FROM PUBLIC;


-- Name: FUNCTION wake(p_queue text, p_jobs bigint); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.wake(p_queue text, p_jobs bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.wake(p_queue text, p_jobs bigint) TO holdfast_enqueue;


-- Name: FUNCTION walk_batches(p_within interval); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.walk_batches(p_within interval) FROM PUBLIC;


-- Name: FUNCTION wanted_cancels(p_tokens bigint[]); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.wanted_cancels(p_tokens bigint[]) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.wanted_cancels(p_tokens bigint[]) TO holdfast_worker;


-- Name: FUNCTION wanted_workers(p_queue text, p_seconds double precision); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.wanted_workers(p_queue text, p_seconds double precision) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.wanted_workers(p_queue text, p_seconds double precision) TO holdfast_reader;


-- Name: FUNCTION webhooks_wanted(); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.webhooks_wanted() FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.webhooks_wanted() TO holdfast_worker;


-- Name: FUNCTION why(p_id uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.why(p_id uuid) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.why(p_id uuid) TO holdfast_reader;


-- Name: FUNCTION why_behind(p_id uuid, p_queue text, p_priority integer, p_lane bigint, p_run_at timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.why_behind(p_id uuid, p_queue text, p_priority integer, p_lane bigint, p_run_at timestamp with time zone) FROM PUBLIC;


-- Name: FUNCTION why_limits(p_queue text, p_task text, p_tenant text, p_keys text[], p_late boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.why_limits(p_queue text, p_task text, p_tenant text, p_keys text[], p_late boolean) FROM PUBLIC;


-- Name: FUNCTION why_parked(p_id uuid, p_waits_for text, p_until timestamp with time zone); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.why_parked(p_id uuid, p_waits_for text, p_until timestamp with time zone) FROM PUBLIC;


-- Name: FUNCTION why_started(p_id uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.why_started(p_id uuid) FROM PUBLIC;


-- Name: FUNCTION why_waiting(p_id uuid); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.why_waiting(p_id uuid) FROM PUBLIC;


-- Name: FUNCTION work_actions(p_id uuid, p_within interval, OUT id uuid, OUT state text, OUT more boolean); Type: ACL; Schema: holdfast; Owner: -

REVOKE ALL ON FUNCTION holdfast.work_actions(p_id uuid, p_within interval, OUT id uuid, OUT state text, OUT more boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION holdfast.work_actions(p_id uuid, p_within interval, OUT id uuid, OUT state text, OUT more boolean) TO holdfast_worker;
GRANT ALL ON FUNCTION holdfast.work_actions(p_id uuid, p_within interval, OUT id uuid, OUT state text, OUT more boolean) TO holdfast_service;


-- Name: COLUMN api_tokens.id; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(id) ON TABLE holdfast.api_tokens TO holdfast_reader;


-- Name: COLUMN api_tokens.name; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(name) ON TABLE holdfast.api_tokens TO holdfast_reader;


-- Name: COLUMN api_tokens.shown; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(shown) ON TABLE holdfast.api_tokens TO holdfast_reader;


-- Name: COLUMN api_tokens.tenant; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(tenant) ON TABLE holdfast.api_tokens TO holdfast_reader;


-- Name: COLUMN api_tokens.scopes; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(scopes) ON TABLE holdfast.api_tokens TO holdfast_reader;


-- Name: COLUMN api_tokens.priority; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(priority) ON TABLE holdfast.api_tokens TO holdfast_reader;


-- Name: COLUMN api_tokens.rate; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(rate) ON TABLE holdfast.api_tokens TO holdfast_reader;


-- Name: COLUMN api_tokens.created_at; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(created_at) ON TABLE holdfast.api_tokens TO holdfast_reader;


-- Name: COLUMN api_tokens.expires_at; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(expires_at) ON TABLE holdfast.api_tokens TO holdfast_reader;


-- Name: COLUMN api_tokens.revoked_at; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(revoked_at) ON TABLE holdfast.api_tokens TO holdfast_reader;


-- Name: COLUMN api_tokens.last_used_at; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT(last_used_at) ON TABLE holdfast.api_tokens TO holdfast_reader;


-- Name: TABLE arrivals; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.arrivals TO holdfast_reader;


-- Name: TABLE attempt_counts; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.attempt_counts TO holdfast_reader;


-- Name: TABLE audit; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.audit TO holdfast_reader;


-- Name: TABLE batch_counts; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.batch_counts TO holdfast_reader;


-- Name: TABLE batches; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.batches TO holdfast_reader;


-- Name: TABLE batch_progress; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.batch_progress TO holdfast_reader;


-- Name: TABLE blocks; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.blocks TO holdfast_reader;
GRANT DELETE ON TABLE holdfast.blocks TO holdfast_admin;


-- Name: TABLE breaker_events; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.breaker_events TO holdfast_reader;


-- Name: TABLE cancels; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.cancels TO holdfast_reader;


-- Name: TABLE claims; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.claims TO holdfast_reader;


-- Name: TABLE cursor_keys; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.cursor_keys TO holdfast_service;


-- Name: TABLE dead; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.dead TO holdfast_reader;


-- Name: TABLE dedupe; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.dedupe TO holdfast_reader;


-- Name: TABLE endings; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.endings TO holdfast_reader;


-- Name: TABLE error_arrivals; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.error_arrivals TO holdfast_reader;


-- Name: TABLE error_counts; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.error_counts TO holdfast_reader;


-- Name: TABLE error_groups; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.error_groups TO holdfast_reader;


-- Name: TABLE errors; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.errors TO holdfast_reader;


-- Name: TABLE flows; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.flows TO holdfast_reader;


-- Name: TABLE folds; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.folds TO holdfast_reader;


-- Name: TABLE follows; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.follows TO holdfast_reader;


-- Name: TABLE leader; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.leader TO holdfast_reader;


-- Name: TABLE limit_settings; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.limit_settings TO holdfast_reader;


-- Name: TABLE minutes; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.minutes TO holdfast_reader;


-- Name: TABLE settings; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.settings TO holdfast_reader;
GRANT INSERT,UPDATE ON TABLE holdfast.settings TO holdfast_admin;


-- Name: TABLE snapshots; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.snapshots TO holdfast_reader;


-- Name: TABLE ticks; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.ticks TO holdfast_reader;


-- Name: TABLE worker_tick_metrics; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.worker_tick_metrics TO holdfast_reader;


-- Name: TABLE workers; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.workers TO holdfast_reader;


-- Name: TABLE health_levels; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.health_levels TO holdfast_reader;


-- Name: TABLE history; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.history TO holdfast_reader;


-- Name: TABLE history_default; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.history_default TO holdfast_reader;


-- Name: TABLE job_logs; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.job_logs TO holdfast_reader;


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


-- Name: COLUMN live.lane; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(lane) ON TABLE holdfast.live TO holdfast_enqueue;


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


-- Name: COLUMN live.batch; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(batch) ON TABLE holdfast.live TO holdfast_enqueue;


-- Name: COLUMN live.headers; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(headers) ON TABLE holdfast.live TO holdfast_enqueue;


-- Name: COLUMN live.keys; Type: ACL; Schema: holdfast; Owner: -

GRANT INSERT(keys) ON TABLE holdfast.live TO holdfast_enqueue;


-- Name: TABLE progress; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.progress TO holdfast_reader;


-- Name: TABLE jobs; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.jobs TO holdfast_reader;


-- Name: TABLE kept_orders; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.kept_orders TO holdfast_reader;


-- Name: TABLE lanes; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.lanes TO holdfast_reader;


-- Name: TABLE limits; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.limits TO holdfast_reader;


-- Name: TABLE releases; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.releases TO holdfast_reader;


-- Name: TABLE limit_drift; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.limit_drift TO holdfast_reader;


-- Name: TABLE limit_rules; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.limit_rules TO holdfast_reader;


-- Name: TABLE limit_state; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.limit_state TO holdfast_reader;


-- Name: TABLE throttled; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.throttled TO holdfast_reader;


-- Name: TABLE limit_use; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.limit_use TO holdfast_reader;


-- Name: TABLE outbox; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.outbox TO holdfast_reader;


-- Name: TABLE queue_depth; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.queue_depth TO holdfast_reader;


-- Name: TABLE recent_attempts; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.recent_attempts TO holdfast_reader;


-- Name: TABLE reopenings; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.reopenings TO holdfast_reader;


-- Name: TABLE rings; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.rings TO holdfast_reader;


-- Name: TABLE schedules; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.schedules TO holdfast_reader;


-- Name: TABLE schema_files; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.schema_files TO holdfast_reader;


-- Name: TABLE schema_info; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.schema_info TO holdfast_enqueue;
GRANT SELECT ON TABLE holdfast.schema_info TO holdfast_worker;
GRANT SELECT ON TABLE holdfast.schema_info TO holdfast_reader;
GRANT SELECT ON TABLE holdfast.schema_info TO holdfast_service;
GRANT SELECT ON TABLE holdfast.schema_info TO holdfast_admin;


-- Name: TABLE signals; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.signals TO holdfast_reader;


-- Name: TABLE sleepers; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.sleepers TO holdfast_enqueue;
GRANT SELECT ON TABLE holdfast.sleepers TO holdfast_reader;


-- Name: TABLE stuck_jobs; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.stuck_jobs TO holdfast_reader;


-- Name: TABLE tasks; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.tasks TO holdfast_reader;


-- Name: TABLE tenant_shares; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.tenant_shares TO holdfast_reader;


-- Name: TABLE token_clock; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.token_clock TO holdfast_reader;


-- Name: TABLE usage_counts; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.usage_counts TO holdfast_reader;


-- Name: TABLE usage; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.usage TO holdfast_reader;


-- Name: TABLE webhook_bodies; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.webhook_bodies TO holdfast_reader;


-- Name: TABLE webhook_deliveries; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.webhook_deliveries TO holdfast_reader;


-- Name: TABLE webhook_endpoint_state; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.webhook_endpoint_state TO holdfast_reader;


-- Name: TABLE worker_health_summary; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.worker_health_summary TO holdfast_reader;


-- Name: TABLE worker_stops; Type: ACL; Schema: holdfast; Owner: -

GRANT SELECT ON TABLE holdfast.worker_stops TO holdfast_reader;


-- PostgreSQL database dump complete
