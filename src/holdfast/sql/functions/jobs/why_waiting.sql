-- Return what keeps a waiting job from running, as reasons for why. If all slots of its queue's workers are busy with
-- jobs of other queues, the reason names them.
create or replace function why_waiting(p_id uuid) returns jsonb
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    v_job record; v_late boolean; v_found jsonb := '[]'; v_alive text[]; v_knowing bigint; v_slots bigint; v_used bigint;
    v_others text[];  -- queues of the claimed jobs, if none is of this queue
    v_last record; v_stopping text[];
begin
    select * into v_job from (
        select l.*, false as later from live l where l.id = p_id
        union all select l.*, true from later l where l.id = p_id) j;
    v_late := v_job.later and v_job.run_at > clock();
    if v_job.deadline is not null then
        v_found := v_found || jsonb_build_object('kind', 'deadline', 'deadline', v_job.deadline, 'short', 'its deadline',
            'rank', case when v_job.deadline <= clock() then 10 else 95 end, 'text', format(
                case when v_job.deadline <= clock() then 'its deadline passed %s ago: it is about to be canceled'
                     else 'it will be canceled unless it starts within %s' end,
                in_words(greatest(v_job.deadline - clock(), clock() - v_job.deadline))));
    end if;
    if exists (select 1 from batches b where b.id = v_job.batch and b.canceled) then
        v_found := v_found || jsonb_build_object('kind', 'batch', 'rank', 11, 'batch', v_job.batch, 'short', 'its batch',
            'text', format('its batch %s was canceled: it is about to be canceled too', v_job.batch));
    end if;
    if v_job.later and v_job.waits_for is not null then
        v_found := v_found || why_parked(p_id, v_job.waits_for, v_job.run_at);
    elsif v_job.later then
        v_found := v_found || jsonb_strip_nulls(jsonb_build_object(
            'kind', 'later', 'rank', 30, 'run_at', v_job.run_at, 'attempt', v_job.attempt, 'max_attempts', v_job.max_attempts,
            'in_seconds', extract(epoch from v_job.run_at - clock()), 'short', 'its time',
            'error', v_job.last_error - '{traceback,output,fingerprint,frame}'::text[], 'text',
            case when v_job.last_error is null and v_job.attempt = 0 then 'it was put off'
                 else format('it waits for attempt %s of %s', v_job.attempt + 1, v_job.max_attempts) end
            || case when v_late then format(', due in %s', in_words(v_job.run_at - clock()))
                    else ' and is due; workers are about to move it into the queue' end
            || case when v_job.last_error is null then '' else ', after ' || error_in_words(v_job.last_error) end));
    end if;
    if v_job.dedupe_key is not null then
        v_found := v_found || jsonb_build_object('kind', 'dedupe', 'rank', 96, 'dedupe_key', v_job.dedupe_key, 'text', format(
            'it may hold dedupe key %s: an enqueue with that key returns this job', left(v_job.dedupe_key, 100)));
    end if;
    v_found := v_found || why_limits(v_job.queue, v_job.task, v_job.tenant, v_job.keys, v_late)
        || case when v_late then '[]' else why_behind(p_id, v_job.queue, v_job.priority, v_job.lane, v_job.run_at) end;
    select array_agg(w.id), count(*) filter (where v_job.task = any (w.tasks)), sum(w.concurrency)
    into v_alive, v_knowing, v_slots
    from workers w where v_job.queue = any (w.queues) and not w.stopping and is_alive(w.id, w.heartbeat_at);
    if v_alive is null then
        v_stopping := array(select w.id from workers w where v_job.queue = any (w.queues) and is_alive(w.id, w.heartbeat_at) order by w.id);
    end if;
    if v_stopping <> '{}' then  -- soon restarted, mostly: what a delayed job waits for is its time
        v_used := (select count(*) from claimed_jobs() c where c.worker = any (v_stopping));
        v_found := v_found || jsonb_build_object('kind', 'stopping', 'rank', case when v_late then 31 else 25 end, 'queue', v_job.queue,
            'workers', v_stopping[:5], 'jobs', v_used, 'short', 'its workers are stopping', 'text', format(
                case when cardinality(v_stopping) = 1 then 'the only worker of queue %2$s is stopping'
                     else 'all %1$s workers of queue %2$s are stopping' end, cardinality(v_stopping), v_job.queue)
                || case v_used when 0 then '' when 1 then ' (1 job left)' else format(' (%s jobs left)', v_used) end);
    elsif v_alive is null then
        select w.id, w.heartbeat_at into v_last from workers w
        where v_job.queue = any (w.queues) order by w.heartbeat_at desc limit 1;
        v_found := v_found || jsonb_strip_nulls(jsonb_build_object(
            'kind', 'no_worker', 'rank', 25, 'queue', v_job.queue, 'short', 'no worker', 'last_worker', v_last.id,
            'last_heard_of', v_last.heartbeat_at, 'text', format('no live worker serves queue %s', v_job.queue)
                || coalesce('; the last one, ' || v_last.id || ', was heard of '
                            || in_words(clock() - v_last.heartbeat_at) || ' ago', '')
                || case when v_job.task = 'holdfast.webhook' then '; workers deliver webhooks where holdfast-jobs[webhooks] is installed'
                        when exists (select from tasks) and not exists (select from tasks t where t.name = v_job.task)
                        then format('; and none has ever known task %s', v_job.task)
                        else '' end));
    elsif v_knowing = 0 then
        v_found := v_found || jsonb_build_object(
            'kind', 'no_task', 'rank', 26, 'queue', v_job.queue, 'task', v_job.task, 'workers', v_alive[:5],
            'short', 'no worker knows its task',
            'text', format('no live worker knows task %s; queue %s is served by %s', v_job.task, v_job.queue,
                           array_to_string(v_alive[:3], ', ') || case when cardinality(v_alive) > 3 then ', ...' else '' end));
    elsif not v_late then
        select count(*), case when bool_and(c.queue <> v_job.queue) then array_agg(distinct c.queue) end
        into v_used, v_others from claimed_jobs() c where c.worker = any (v_alive);
        if v_used >= v_slots then
            v_found := v_found || jsonb_strip_nulls(jsonb_build_object('kind', 'busy', 'rank', 70,
                'workers', cardinality(v_alive), 'slots', v_slots, 'claimed', v_used, 'queues', v_others[:5],
                'short', 'busy workers', 'text', format(
                    case when v_slots = 1 then 'the only slot of %2$s %3$s is busy' else 'all %1$s slots of %2$s %3$s are busy' end,
                    v_slots, case when cardinality(v_alive) = 1 then 'the one worker that serves queue'
                                  else format('the %s workers that serve queue', cardinality(v_alive)) end, v_job.queue)
                || coalesce(case when v_slots = 1 then ' with another queue (' else ' with other queues (' end
                            || array_to_string(v_others[:3], ', ') || case when cardinality(v_others) > 3 then ', ...)' else ')' end, '')));
        end if;
    end if;
    if not exists (select 1 from jsonb_array_elements(v_found) r where (r ->> 'rank')::integer < 95) then
        v_found := v_found || jsonb_build_object('kind', 'soon', 'rank', 90, 'text',
            'nothing is in its way: a worker will take it in a moment');
    end if;
    return v_found;
end $$;
