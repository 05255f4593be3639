-- Return where a claimed job runs, or how a job ended, as reasons for why.
create or replace function why_started(p_id uuid) returns jsonb
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    v_job record; v_cancel timestamptz := (select c.requested_at from cancels c where c.id = p_id); v_ago text;
    v_attempt text; v_error text;
    v_gone boolean;  -- discarded
begin
    select * into v_job from jobs j where j.id = p_id;
    v_attempt := format('attempt %s of %s', v_job.attempts, v_job.max_attempts);
    if v_job.status = 'running' then
        return jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
            'kind', 'running', 'short', 'running', 'rank', 1, 'worker', v_job.locked_by, 'since', v_job.started_at,
            'lease_until', v_job.lease_expires_at, 'heartbeat_at', v_job.heartbeat_at, 'attempt', v_job.attempts,
            'max_attempts', v_job.max_attempts, 'progress', v_job.progress, 'text', format('it has been running on %s for %s, %s',
                coalesce(v_job.locked_by, 'an unknown worker'), in_words(clock() - v_job.started_at), v_attempt)))
            || case when v_job.lease_expires_at <= clock() then jsonb_build_object('kind', 'lost', 'short', 'a lost lease', 'text', format(
                '%s stopped renewing its lease, which ran out %s ago: the next worker that does upkeep takes it back',
                v_job.locked_by, in_words(clock() - v_job.lease_expires_at))) else '{}' end)
            || case when v_cancel is null then '[]' else jsonb_build_array(jsonb_build_object(
            'kind', 'canceling', 'rank', 2, 'short', 'it was asked to stop', 'since', v_cancel,
            'text', format('it was asked to stop %s ago', in_words(clock() - v_cancel)))) end;
    end if;
    v_ago := in_words(clock() - v_job.finished_at) || ' ago';
    v_error := coalesce(nullif(error_in_words(v_job.last_error), ''), 'no error was stored');
    v_gone := v_job.status in ('failed', 'dead') and not exists (select 1 from dead d where d.id = p_id);
    return jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
        'kind', v_job.status, 'rank', 0, 'finished_at', v_job.finished_at, 'attempt', v_job.attempts,
        'max_attempts', v_job.max_attempts, 'worker', v_job.locked_by, 'batch', v_job.batch,
        'error', v_job.last_error - '{traceback,output,fingerprint,frame}'::text[], 'discarded', case when v_gone then true end, 'text', case
            when v_job.status = 'succeeded' then format('it succeeded %s, on %s', v_ago, v_attempt)
            when v_job.status = 'failed' then format('it failed for good %s, on %s: %s', v_ago, v_attempt, v_error)
            when v_job.status = 'dead' and v_job.attempts >= v_job.max_attempts then
                format('it died %s, when its attempts were used up: the last one, %s of %s, ended with %s', v_ago,
                       v_job.attempts, v_job.max_attempts, v_error)
            when v_job.status = 'dead' then format('it died %s, on %s: %s', v_ago, v_attempt, v_error)
            when v_job.last_error ->> 'code' = 'DEADLINE_EXPIRED' then
                format('it was canceled %s: its deadline passed before it could start', v_ago)
            when exists (select 1 from batches b where b.id = v_job.batch and b.canceled) then
                format('it was canceled %s with its batch %s', v_ago, v_job.batch)
            else format('it was canceled %s, %s', v_ago,
                        case when v_job.started_at is null then 'before it started' else 'while it ran' end) end
            || case when v_gone then '; it was discarded since'
                    when v_job.status in ('failed', 'dead') then '; it waits for a person to retry or discard it' else '' end)));
end $$;
