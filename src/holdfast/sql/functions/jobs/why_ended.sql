-- Returns how a job ended, as reasons for why.
create or replace function why_ended(p_id uuid) returns jsonb
language plpgsql stable
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    v_job   record;
    v_ago   text;
    v_on    text;
    v_error text;
    v_gone  boolean;
    v_text  text;
begin
    select * into v_job from jobs j where j.id = p_id;
    v_ago := in_words(extract(epoch from clock() - v_job.finished_at)) || ' ago';
    v_on := format('on attempt %s of %s', v_job.attempts, v_job.max_attempts);
    v_error := coalesce(nullif(error_in_words(v_job.last_error), ''), 'no error was stored');
    v_gone := v_job.status in ('failed', 'dead') and not exists (select 1 from dead d where d.id = p_id);
    v_text := case
        when v_job.status = 'succeeded' then format('it succeeded %s, %s', v_ago, v_on)
        when v_job.status = 'failed' then format('it failed for good %s, %s: %s', v_ago, v_on, v_error)
        when v_job.status = 'dead' and v_job.attempts >= v_job.max_attempts then
            format('it died %s, when its attempts were used up: the last one, %s of %s, ended with %s', v_ago,
                   v_job.attempts, v_job.max_attempts, v_error)
        when v_job.status = 'dead' then format('it died %s, %s: %s', v_ago, v_on, v_error)
        when v_job.last_error ->> 'code' = 'DEADLINE_EXPIRED' then
            format('it was canceled %s: its deadline passed before it could start', v_ago)
        when exists (select 1 from batches b where b.id = v_job.batch and b.canceled) then
            format('it was canceled %s with its batch %s', v_ago, v_job.batch)
        else format('it was canceled %s, %s', v_ago,
                    case when v_job.started_at is null then 'before it started' else 'while it ran' end) end;
    if v_gone then
        v_text := v_text || '; it was discarded since';
    elsif v_job.status in ('failed', 'dead') then
        v_text := v_text || '; it waits for a person to retry or discard it';
    end if;
    return jsonb_build_array(jsonb_strip_nulls(jsonb_build_object(
        'kind', v_job.status, 'rank', 0, 'text', v_text, 'finished_at', v_job.finished_at, 'attempt', v_job.attempts,
        'max_attempts', v_job.max_attempts, 'worker', v_job.locked_by, 'batch', v_job.batch,
        'error', v_job.last_error - 'traceback' - 'output', 'discarded', case when v_gone then true end)));
end $$;
