-- Process ended jobs: start the undo of their steps, resume the jobs that called them, and start or cancel the jobs
-- that follow them. With p_own, the jobs that this transaction has ended. Otherwise all, for the leader, which finds
-- those that were left: because of a lock, because they were too many for one call, or because the transaction that
-- ended them has an old snapshot, which does not show a job that began to wait meanwhile. An undo that cannot be
-- enqueued does not hold up the jobs that follow.
-- Locks: endings, skipping locked ones; then as undo_ended and end_job_waits. A transaction waits 100 ms for the first
--   lock and 1 ms for each further one, and gives up 200 ms after the first; the leader, after 1 s.
-- Wakes: sleepers of the queues of jobs that are started or resumed.
create or replace function process_endings(p_own boolean default true, p_limit integer default 1000) returns integer
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
set lock_timeout = '100ms' as $$
declare
    v_done integer := 0; v_before integer; v_ending record; v_left uuid[] := '{}'; v_part text; v_all boolean; v_any boolean;
    v_until timestamptz := clock_timestamp() + interval '5 s';
    -- One wait for each transaction: reclaim settles many claims in one.
    v_waited double precision := nullif(current_setting('holdfast.endings_until', true), '')::double precision;
    v_first xid8 := case when p_own then pg_current_xact_id() else '0' end; v_from xid8 := v_first;
    v_last xid8 := case when p_own then v_first else '18446744073709551615' end;
begin
    if current_setting('transaction_isolation') <> 'read committed' then return 0; end if;
    if v_waited is not null then
        perform set_config('lock_timeout', '1ms', true);
        if p_own then v_until := least(v_until, to_timestamp(v_waited)); end if;
    end if;
    if not p_own then  -- from anywhere, so that many locked ones do not hold up those behind them in every round
        v_from := coalesce((
            select d.xid from (select distinct f.xid from (select e.xid from endings e order by e.xid, e.job limit p_limit) f) d
            order by random() limit 1), v_first);
    end if;
    loop
        v_before := v_done;
        for v_ending in select e.ctid as place, e.* from endings e
            where e.xid between v_from and v_last and e.job <> all (v_left)
            order by e.xid, e.job limit p_limit for update skip locked
        loop
            exit when clock_timestamp() > v_until;
            v_all := true;
            v_any := false;
            foreach v_part in array array['undo', 'followed'] loop
                begin
                    if v_part = 'undo' and v_ending.durable then
                        perform undo_ended(v_ending.job);
                    elsif v_part = 'followed' and v_ending.followed and end_job_waits(v_ending.job, v_ending.status, p_limit) then
                        v_all := false;  -- there are more followers: the leader goes on
                    end if;
                    v_any := true;
                exception
                    when lock_not_available then
                        v_all := false;
                        if v_waited is null then
                            v_waited := extract(epoch from clock_timestamp()) + 0.2;
                            v_until := least(v_until, clock_timestamp() + case when p_own then interval '200 ms' else interval '1 s' end);
                            perform set_config('lock_timeout', '1ms', true), set_config('holdfast.endings_until', v_waited::text, true);
                        end if;
                    when others then
                        v_all := false;
                        raise warning 'the end of job % cannot be processed: %', v_ending.job, sqlerrm;
                end;
            end loop;
            if v_all then
                delete from endings where ctid = v_ending.place;
            else
                v_left := v_left || v_ending.job;
            end if;
            v_done := v_done + v_any::integer;
        end loop;
        exit when v_done = v_before and v_from = v_first or v_done >= p_limit or clock_timestamp() > v_until;
        v_from := v_first;  -- again: a job that was canceled here has followers, too
    end loop;
    return v_done;
end $$;
