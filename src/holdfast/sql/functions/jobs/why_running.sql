-- Returns where a claimed job runs, as reasons for why.
create or replace function why_running(p_id uuid) returns jsonb
language plpgsql stable
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    v_job    record;
    v_lease  claims;
    v_cancel timestamptz := (select c.requested_at from cancels c where c.id = p_id);
    v_facts  jsonb;
    v_found  jsonb := '[]';
begin
    select l.token, l.attempt, l.max_attempts, l.claimed_at into v_job from live l where l.id = p_id;
    select * into v_lease from claims c where c.token = v_job.token;
    v_facts := jsonb_strip_nulls(jsonb_build_object(
        'worker', v_lease.worker, 'since', v_job.claimed_at, 'lease_until', v_lease.expires_at,
        'heartbeat_at', v_lease.heartbeat_at, 'attempt', v_job.attempt, 'max_attempts', v_job.max_attempts,
        'progress', (select to_jsonb(p) - 'id' from progress p where p.id = p_id)));
    if v_lease.expires_at <= clock() then
        v_found := v_found || (v_facts || jsonb_build_object('kind', 'lost', 'rank', 1, 'short', 'a lost lease', 'text', format(
            '%s stopped renewing its lease, which ran out %s ago: the next worker that does upkeep takes it back',
            v_lease.worker, in_words(extract(epoch from clock() - v_lease.expires_at)))));
    else
        v_found := v_found || (v_facts || jsonb_build_object('kind', 'running', 'rank', 1, 'short', 'running', 'text', format(
            'it has been running on %s for %s, attempt %s of %s', coalesce(v_lease.worker, 'an unknown worker'),
            in_words(extract(epoch from clock() - v_job.claimed_at)), v_job.attempt, v_job.max_attempts)));
    end if;
    if v_cancel is not null then
        v_found := v_found || jsonb_build_object('kind', 'canceling', 'rank', 2, 'short', 'it was asked to stop', 'since', v_cancel,
            'text', format('it was asked to stop %s ago', in_words(extract(epoch from clock() - v_cancel))));
    end if;
    return v_found;
end $$;
