-- Accept one job: into live if it is due, else into later. A client that lost the connection repeats the call with the
-- same id and without p_fresh; the job is accepted once.
-- Parameters: p_fresh: p_id was never sent before, which saves the lookup in later, dead and history. p_counted: the
--   caller counts created jobs into their batch, in the same transaction. p_keys are the limits of the job, such as
--   "domain:example.org"; workers' code and operators set their values. p_after: jobs that must end before this one
--   starts; p_on_failure says what happens if one of them does not succeed (follows).
-- Returns: the id and the outcome: created, existing (same id, or same dedupe key) or replaced (the waiting job that
--   holds the key got this payload).
-- Locks: the jobs of p_after, shared; the dedupe key, then the job's own row, then the batch (shared). It never waits
--   for a job row while it holds a key.
-- Wakes: sleepers of the queue, when the job is due or is now the next to become due.
create or replace function enqueue(p_task text, p_payload jsonb default '{}', p_queue text default 'default',
    p_id uuid default null, p_tenant text default null, p_priority integer default 2, p_delay interval default null,
    p_run_at timestamptz default null, p_max_attempts integer default null, p_retry jsonb default null,
    p_dedupe_key text default null, p_dedupe_scope dedupe_scope default 'running', p_dedupe_keep interval default null,
    p_on_conflict text default 'existing', p_fresh boolean default false, p_deadline interval default null,
    p_batch uuid default null, p_headers json default null, p_counted boolean default false, p_keys text[] default null,
    p_after uuid[] default null, p_on_failure text default 'cancel', out id uuid, out outcome text)
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
#variable_conflict use_column
declare
    v_id uuid := coalesce(p_id, uuid7()); v_now timestamptz := clock();
    v_run_at timestamptz := coalesce(p_run_at, v_now + p_delay, v_now); v_due boolean := v_run_at <= v_now;
    v_max integer := p_max_attempts; v_holder uuid; v_taken boolean; v_wake boolean;
    v_late timestamptz := v_now + p_deadline; v_keys text[]; v_lane bigint := 0; v_pending uuid[]; v_failed uuid[]; v_waits_for text;
begin
    if v_max is null then v_max := coalesce((select t.max_attempts from tasks t where t.name = p_task), 5); end if;
    -- The fast test; check_job reports which value is invalid.
    if (length(p_task) between 1 and 200 and length(p_queue) between 1 and 100 and strpos(p_queue, '/') = 0 and strpos(p_queue, ',') = 0
        and p_queue = btrim(p_queue, E' \t\n\r\f\v')
        and length(coalesce(p_tenant, '-')) between 1 and 200 and p_priority between 0 and 3
        and v_max between 1 and 32000 and jsonb_typeof(p_payload) = 'object'
        and v_run_at between '1970-01-01' and '9999-12-31') is not true then
        perform check_job(p_task, p_queue, p_tenant, p_priority, v_max, p_payload, v_run_at);
    end if;
    if p_keys is not null then v_keys := check_keys(p_keys); end if;
    if p_tenant is not null or v_keys is not null then v_lane := lane_of(p_tenant, v_keys); end if;
    if v_late <= v_run_at then
        raise exception 'a deadline of % is not after the time the job may start, %', p_deadline, v_run_at
            using errcode = 'invalid_parameter_value';
    end if;
    if p_id is not null and not p_fresh and current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'cannot enqueue with a given id in a % transaction: it may not see that the job was already accepted',
            current_setting('transaction_isolation')
            using errcode = 'invalid_parameter_value', hint = 'use read committed, or let enqueue generate the id';
    end if;
    if p_id is not null and not p_fresh and times_accepted(p_id) > 0 then
        enqueue.id := p_id;
        enqueue.outcome := 'existing';
        return;
    end if;
    if p_after is not null and p_after <> '{}' then
        perform check_after(v_id, p_after, p_on_failure, coalesce(p_run_at, v_now + p_delay));
        select o.pending, o.failed into v_pending, v_failed from lock_predecessors(p_after) o;
        if v_pending <> '{}' or v_failed <> '{}' and p_on_failure <> 'run' then
            v_waits_for := 'after';
            v_due := false;
            v_run_at := v_now + interval '10 years';
        end if;
    end if;
    if p_dedupe_key is not null then
        perform check_dedupe_key(p_dedupe_key, p_task, p_tenant);
        loop
            select k.holder, k.taken into v_holder, v_taken
            from take_dedupe_key(p_dedupe_key, v_id, p_dedupe_scope, p_dedupe_keep) k;
            exit when v_holder = v_id;
            enqueue.id := v_holder;
            enqueue.outcome := resolve_duplicate(p_dedupe_key, v_holder, p_task, p_tenant, p_payload, p_on_conflict, v_keys);
            if enqueue.outcome is not null then return; end if;
        end loop;
    end if;
    if v_due then
        insert into live (id, queue, priority, lane, run_at, created_at, max_attempts, task, tenant, payload, dedupe_key,
                          retry, deadline, batch, headers, keys)
        values (v_id, p_queue, p_priority, v_lane, v_run_at, v_now, v_max, p_task, p_tenant, p_payload::json,
                p_dedupe_key, p_retry, v_late, p_batch, p_headers, v_keys)
        on conflict do nothing returning exists (select 1 from sleepers s where s.queue = p_queue) into v_wake;
    else
        if p_id is not null and not p_fresh then
            -- An id is accepted once, and no unique index spans both tables. So it is in live for a moment: a call with the same
            -- id for a due job conflicts there and waits for this transaction.
            insert into live (id, queue, priority, lane, task) values (v_id, p_queue, 3, 9223372036854775807, p_task)
            on conflict do nothing;
            if not found then
                enqueue.id := v_id;
                enqueue.outcome := 'existing';
                delete from dedupe d where v_taken and d.key = p_dedupe_key and d.id = v_id;
                return;
            end if;
            delete from live l where l.id = v_id;
        end if;
        insert into later (id, queue, priority, lane, run_at, created_at, attempt, max_attempts, task, tenant, payload,
                           dedupe_key, retry, deadline, batch, headers, keys, waits_for)
        values (v_id, p_queue, p_priority, v_lane, v_run_at, v_now, 0, v_max, p_task, p_tenant, p_payload::json,
                p_dedupe_key, p_retry, v_late, p_batch, p_headers, v_keys, v_waits_for)
        on conflict do nothing
        -- Sleepers know when the next job is due, so they are notified if this one is due before it.
        returning not exists (select 1 from later l where l.run_at >= v_now and l.run_at < v_run_at) into v_wake;
    end if;
    enqueue.id := v_id;
    -- Checked again after the insert, which has waited for a concurrent finish and now sees where that put the job. The
    -- first check alone would let a job run twice; this one alone would take its key again.
    enqueue.outcome := case when found then 'created' else 'existing' end;
    if found and p_id is not null and not p_fresh and times_accepted(v_id) > 1 then
        enqueue.outcome := 'existing';
        delete from live l where v_due and l.id = v_id;
        delete from later l where not v_due and l.id = v_id;
        delete from dedupe d where v_taken and d.key = p_dedupe_key and d.id = v_id;
    end if;
    if p_batch is not null and not p_counted and enqueue.outcome = 'created' then perform add_to_batch(p_batch); end if;
    if v_waits_for is not null and enqueue.outcome = 'created' then
        perform follow(v_id, v_pending, v_failed, p_on_failure);
    elsif v_wake and enqueue.outcome = 'created' then
        perform wake(p_queue);
    end if;
end $$;
