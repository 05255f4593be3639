-- Returns whether a live worker serves a job's queue, knows its task and has a free slot, as reasons for why. If all
-- slots are busy with jobs of other queues, the reason names them.
create or replace function why_workers(p_queue text, p_task text, p_late boolean) returns jsonb
language plpgsql stable set search_path from current set jit = off as $$
declare
    v_alive text[]; v_knowing bigint; v_slots bigint; v_used bigint;
    v_others text[];  -- queues of the claimed jobs, if none is of this queue
    v_last record;
begin
    select array_agg(w.id), count(*) filter (where p_task = any (w.tasks)), sum(w.concurrency)
    into v_alive, v_knowing, v_slots
    from workers w where p_queue = any (w.queues) and not w.stopping and is_alive(w.id, w.heartbeat_at);
    if v_alive is null then
        select w.id, w.heartbeat_at into v_last from workers w
        where p_queue = any (w.queues) order by w.heartbeat_at desc limit 1;
        return jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
            'kind', 'no_worker', 'rank', 25, 'queue', p_queue, 'short', 'no worker', 'last_worker', v_last.id,
            'last_heard_of', v_last.heartbeat_at, 'text', format('no live worker serves queue %s', p_queue)
                || coalesce('; the last one, ' || v_last.id || ', was heard of '
                            || in_words(extract(epoch from clock() - v_last.heartbeat_at)) || ' ago', '')
                || case when p_task = 'holdfast.webhook' then '; workers deliver webhooks where holdfast[webhooks] is installed'
                        when exists (select from tasks) and not exists (select from tasks t where t.name = p_task)
                        then format('; and none has ever known task %s', p_task)
                        else '' end)));
    elsif v_knowing = 0 then
        return jsonb_build_array(jsonb_build_object(
            'kind', 'no_task', 'rank', 26, 'queue', p_queue, 'task', p_task, 'workers', v_alive[:5],
            'short', 'no worker knows its task',
            'text', format('no live worker knows task %s; queue %s is served by %s', p_task, p_queue,
                           array_to_string(v_alive[:3], ', ') || case when cardinality(v_alive) > 3 then ', ...' else '' end)));
    elsif p_late then
        return '[]';
    end if;
    select count(*), case when bool_and(c.queue <> p_queue) then array_agg(distinct c.queue) end
    into v_used, v_others from claimed_jobs() c where c.worker = any (v_alive);
    if v_used < v_slots then return '[]'; end if;
    return jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
        'kind', 'busy', 'rank', 70, 'workers', cardinality(v_alive), 'slots', v_slots, 'claimed', v_used, 'queues', v_others[:5], 'short', 'busy workers',
        'text', format(case when v_slots = 1 then 'the only slot of %2$s %3$s is busy'
                            else 'all %1$s slots of %2$s %3$s are busy' end, v_slots,
                       case when cardinality(v_alive) = 1 then 'the one worker that serves queue'
                            else format('the %s workers that serve queue', cardinality(v_alive)) end, p_queue)
                || coalesce(case when v_slots = 1 then ' with another queue (' else ' with other queues (' end
                            || array_to_string(v_others[:3], ', ') || case when cardinality(v_others) > 3 then ', ...)' else ')' end, ''))));
end $$;
