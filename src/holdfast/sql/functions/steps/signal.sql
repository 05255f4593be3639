-- Give a signal its value, and resume the jobs that wait for it, of p_tenant or of none. Return false if it has one
-- already: the first value stays. A signal for which no job waits yet is kept for p_keep (the setting signals_days).
-- In a caller's transaction it counts when that commits. A transaction with an old snapshot is refused: the snapshot
-- may not show a job that waits.
-- Locks: the signal's advisory lock; later rows in id order; rows of steps.
-- Wakes: sleepers of the jobs' queues.
create or replace function signal(p_name text, p_value jsonb default 'null', p_tenant text default null,
    p_keep interval default null) returns boolean
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
    v_tenant text := coalesce(p_tenant, ''); v_jobs uuid[];
    v_keep interval := coalesce(p_keep, make_interval(days => (select s.value::integer from settings s where s.name = 'signals_days')));
begin
    if (length(p_name) between 1 and 200) is not true then
        raise exception 'the name of a signal must have 1 to 200 characters, got %', coalesce(quote_literal(left(p_name, 60)), 'null')
            using errcode = 'invalid_parameter_value';
    elsif v_keep <= interval '0' then
        raise exception 'a signal must be kept for longer than 0, got %', v_keep using errcode = 'invalid_parameter_value';
    elsif current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'cannot give a signal in a % transaction: it may not see a job that waits for it',
            current_setting('transaction_isolation')
            using errcode = 'invalid_parameter_value', hint = 'use read committed';
    end if;
    perform pg_advisory_xact_lock(1215259733, signal_key(v_tenant, p_name));
    -- In a statement of its own: it sees each job that was parked before the lock was free.
    insert into signals as s (tenant, name, value, created_at, expires_at)
    values (v_tenant, p_name, coalesce(p_value, 'null')::json, clock(), clock() + v_keep)
    on conflict (tenant, name) do update set value = excluded.value, created_at = excluded.created_at, expires_at = excluded.expires_at
    where s.expires_at <= clock();
    if not found then return false; end if;
    v_jobs := array(
        select s.job from steps s where s.kind = 'signal' and s.finished_at is null and s.name = p_name and s.tenant = v_tenant);
    if v_jobs <> '{}' then
        perform 1 from later l where l.id = any (v_jobs) order by l.id for update;
        update steps set finished_at = clock(), result = coalesce(p_value, 'null')::json
        where job = any (v_jobs) and name = p_name and kind = 'signal' and finished_at is null;
        perform resume_jobs(v_jobs, array(select 'signal ' || p_name from unnest(v_jobs)));
    end if;
    return true;
end $$;
