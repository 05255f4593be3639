-- Resume the parents that called a job, and start or cancel jobs that follow it: at most p_limit of them. Return
-- whether there are more. p_status: succeeded, skipped (as good as succeeded), failed, dead or canceled.
-- Locks: later rows in id order, then rows of steps, and of follows.
-- Wakes: sleepers of the queues of jobs that are started or resumed.
create or replace function end_job_waits(p_job uuid, p_status text, p_limit integer) returns boolean
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_well boolean := p_status in ('succeeded', 'skipped'); v_more boolean; v_found uuid[]; v_waiting uuid[]; v_canceled uuid[];
    v_skipped uuid[]; v_error jsonb; v_result json := child_result(p_job);
begin
    if v_result is not null then
        perform end_parent_waits(p_job, v_result);
    elsif not v_well then
        return false;  -- a person has retried the job: its next end decides
    end if;
    v_found := array(select f.follower from follows f where f.job = p_job and (v_well or p_status = 'canceled' or f.on_failure <> 'hold') order by f.follower limit p_limit);
    if v_found = '{}' then return false; end if;
    v_more := cardinality(v_found) = p_limit;
    v_waiting := array(select l.id from later l where l.id = any (v_found) and l.waits_for = 'after' order by l.id for update);
    if not v_well then
        select array_agg(f.follower) filter (where f.on_failure = 'cancel'), array_agg(f.follower) filter (where f.on_failure = 'skip')
        into v_canceled, v_skipped from follows f
        where f.job = p_job and f.follower = any (v_waiting) and f.on_failure in ('cancel', 'skip');
        v_error := jsonb_build_object('type', 'PredecessorFailed', 'message', format('job %s, after which it was to start, is %s', p_job, p_status));
        if v_canceled is not null then
            perform cancel_waiting(v_canceled, v_error || '{"code": "PREDECESSOR_FAILED"}', true);
        end if;
        if v_skipped is not null then
            perform cancel_waiting(v_skipped, v_error || '{"code": "SKIPPED"}', true);
        end if;
        delete from follows where follower = any (v_canceled || v_skipped);
    end if;
    delete from follows where job = p_job and follower = any (v_found);
    v_waiting := array(
        select w from unnest(v_waiting) w where not exists (select 1 from follows f where f.follower = w)
        except select unnest(v_canceled || v_skipped));
    if v_waiting <> '{}' then
        perform resume_jobs(v_waiting, array(select 'after' from unnest(v_waiting)));
    end if;
    return v_more;
end $$;
