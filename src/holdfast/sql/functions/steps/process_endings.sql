-- Process ended jobs: start the undo of their steps, resume the jobs that called them, and start or cancel the jobs
-- that follow them. With p_own, the jobs that this transaction has ended. Otherwise all, for the leader, which finds
-- those that were left because of a lock, or because they were too many for one call.
-- Locks: endings, skipping locked ones; then as undo_steps and end_job_waits, for 100 ms at most.
-- Wakes: sleepers of the queues of jobs that are started or resumed.
create or replace function process_endings(p_own boolean default true, p_limit integer default 1000) returns integer
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
set lock_timeout = '100ms' as $$
declare
    v_done integer := 0; v_before integer; v_ending record; v_left uuid[] := '{}';
begin
    -- An old snapshot does not show a job that began to wait meanwhile: the leader does it.
    if current_setting('transaction_isolation') <> 'read committed' then return 0; end if;
    loop
        v_before := v_done;
        for v_ending in select e.ctid as place, e.* from endings e
            where e.xid = case when p_own then pg_current_xact_id() else e.xid end and e.job <> all (v_left)
            order by e.xid, e.job limit p_limit for update skip locked
        loop
            begin
                -- A person may have retried the job meanwhile.
                if v_ending.durable and (
                    exists (select 1 from dead d where d.id = v_ending.job)
                    or exists (select 1 from history h where h.id = v_ending.job and h.status <> 'succeeded'))
                then
                    perform undo_steps(v_ending.job);
                end if;
                if v_ending.followed and end_job_waits(v_ending.job, v_ending.status, p_limit) then
                    v_left := v_left || v_ending.job;  -- there are more followers: the leader goes on
                else
                    delete from endings where ctid = v_ending.place;
                end if;
                v_done := v_done + 1;
            exception
                when lock_not_available then v_left := v_left || v_ending.job;
                when others then
                    v_left := v_left || v_ending.job;
                    raise warning 'the end of job % cannot be processed: %', v_ending.job, sqlerrm;
            end;
        end loop;
        exit when v_done = v_before or v_done >= p_limit;  -- again: a job that was canceled here has followers, too
    end loop;
    return v_done;
end $$;
