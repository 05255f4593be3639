-- Repair a database that was restored to an earlier time; with p_plan, only report the changes. They concern data from
-- before p_before, by default the start of this server:
--   jobs under a claim without a heartbeat since then are reclaimed, and their attempts count; rows of their workers in
--   workers, leader and sleepers are removed; messages and deliveries that wait for their first attempt are marked,
--   because they may have been sent after the time restored to; tokens are raised above the greatest stored one.
-- A call does a bounded part; "more" says that there is another. A second run finds nothing to do.
-- Parameters: p_id is the action that adds up the changes, for the audit.
-- Returns: newest, the time of the newest entry, about the time restored to; slots, schedules that are behind, and
--   actions, running changes of many jobs; neither is changed here.
-- Locks: as reclaim; waiting jobs in id order and the row of token_clock, skipping locked ones.
-- Wakes: sleepers, through settle.
create or replace function after_restore(p_plan boolean default false, p_id uuid default null, p_by text default null,
    p_reason text default null, p_before timestamptz default null, p_most integer default 5000, out before timestamptz,
    out newest timestamptz, out jobs integer, out workers text[], out sleepers integer, out messages integer,
    out deliveries integer, out tokens boolean, out slots integer, out actions integer, out examples uuid[],
    out more boolean)
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
declare
    v_claims bigint[]; v_messages uuid[]; v_deliveries uuid[]; v_top bigint; v_note jsonb; v_done jsonb;
begin
    before := coalesce(p_before, pg_postmaster_start_time());
    if before > clock() then
        raise exception 'before must be a time in the past, got %', before
            using errcode = 'invalid_parameter_value', constraint = 'action';
    end if;
    newest := greatest((select max(w.heartbeat_at) from workers w), (select max(c.heartbeat_at) from claims c),
                       (select max(s.at) from snapshots s), (select max(h.finished_at) from history h));
    v_claims := array(select c.token from claims c where c.heartbeat_at < before order by c.token limit 20);
    jobs := (select count(*) from claims c cross join unnest(c.ids) i join live l on l.id = i and l.token = c.token
             where c.heartbeat_at < before and (p_plan or c.token = any (v_claims)));
    workers := array(select w.id from workers w where w.heartbeat_at < before order by w.id limit 1000);
    sleepers := (select count(*) from sleepers s where s.worker = any (workers));
    v_top := greatest((select max(c.token) from claims c), (select max(f.tag) from flows f));
    tokens := coalesce(v_top >= next_token(), false);
    slots := (select count(*) from schedules s where not s.paused and s.next_at < clock());
    actions := (select count(*) from actions a where a.state = 'running');
    select coalesce(array_agg(i.id) filter (where i.is_message), '{}'),
           coalesce(array_agg(i.id) filter (where not i.is_message), '{}')
    into v_messages, v_deliveries from unsent_jobs(before, p_most) i;
    messages := cardinality(v_messages);
    deliveries := cardinality(v_deliveries);
    examples := (v_messages || v_deliveries)[1:1000];
    more := messages + deliveries >= p_most or cardinality(v_claims) = 20;
    if p_plan then
        return;
    end if;
    update claims c set expires_at = clock() - interval '1 microsecond' where c.token = any (array(
        select k.token from claims k where k.token = any (v_claims) order by k.token for no key update skip locked));
    perform reclaim(20);
    perform unregister_worker(w) from unnest(workers) w;
    perform forget_sleepers();
    perform note_timeline();
    if tokens then
        update token_clock t set ahead = t.ahead + ((v_top - next_token()) >> 10) + 3600000000, changed_at = clock()
        where t.ctid = (select k.ctid from token_clock k for update skip locked);
    end if;
    v_note := jsonb_build_object('type', 'Restored', 'code', 'MAYBE_SENT', 'message',
        format('the database was restored to about %s; this may have been sent after that', newest));
    update live l set payload = (l.payload::jsonb || '{"maybe_sent": true}')::json where l.id = any (v_messages);
    update later l set payload = (l.payload::jsonb || '{"maybe_sent": true}')::json where l.id = any (v_messages);
    update live l set last_error = v_note where l.id = any (v_deliveries);
    update later l set last_error = v_note where l.id = any (v_deliveries);
    v_done := jsonb_build_object('jobs', jobs, 'workers', cardinality(workers), 'messages', messages,
                                 'deliveries', deliveries, 'tokens', tokens::integer);
    if exists (select 1 from jsonb_each_text(v_done) d where d.value <> '0') then
        insert into actions as a (id, kind, target, by, reason, params, examples, started_at, finished_at)
        values (coalesce(p_id, uuid7()), 'after_restore', 'before ' || before, left(coalesce(p_by, session_user), 200),
                left(p_reason, 1000), v_done, examples, clock(), clock())
        on conflict (id) do update set finished_at = clock(), examples = (a.examples || excluded.examples)[1:1000],
            params = (select jsonb_object_agg(d.key, d.value::integer + (a.params ->> d.key)::integer)
                      from jsonb_each_text(excluded.params) d);
    end if;
end $$;
