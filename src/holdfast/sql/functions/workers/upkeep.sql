-- Run one round of upkeep; each worker calls it every few seconds. It takes or keeps the lead. The leader promotes due
-- jobs, reclaims expired leases and jobs without one, cancels jobs past their deadline, ends batches that are complete,
-- processes ended jobs (process_endings) and removes sleepers that are gone. After a long outage prune() may remove a
-- worker before it can renew.
-- Returns: next_slot: seconds until the next slot of a schedule is due, or null. acting: there are actions to process
--   (work_actions). known: the caller is in workers. asleep: it is in sleepers. stop: "drain" or "now" if an operator
--   has asked the caller to stop (stop_worker).
-- Locks: the leader row, without waiting for it (take_lead may lead without it); then as promote and reclaim, which
--   skip locked rows.
-- Wakes: sleepers of queues that got due jobs.
create or replace function upkeep(p_worker text, p_ttl interval, out term bigint, out promoted integer,
    out reclaimed jsonb, out expired integer, out next_slot double precision, out acting boolean, out known boolean,
    out asleep boolean, out stop text)
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v_ids uuid[]; v_again timestamptz; v_began timestamptz;
begin
    term := take_lead('upkeep', p_worker, p_ttl);
    acting := term is not null and exists (select 1 from actions a where a.state = 'running');
    promoted := 0;
    expired := 0;
    reclaimed := '[]';
    known := exists (select 1 from workers w where w.id = p_worker);
    asleep := exists (select 1 from sleepers s where s.worker = p_worker);
    stop := (select case when s.now then 'now' else 'drain' end from worker_stops s where s.worker = p_worker);
    -- Other workers do this when the leader is late: the leader may be gone itself.
    if exists (select 1 from sleepers s where s.worker <> p_worker) and (term is not null or exists (
            select 1 from leader l where l.chore = 'upkeep' and l.expires_at < clock() + p_ttl * 2 / 3)) then
        perform forget_sleepers();
    end if;
    if term is not null then
        perform note_timeline();
        -- A scan of all due jobs passes the index entries of jobs promoted long ago, which an open transaction keeps alive. If it is
        -- slow, the leader spends at most 2 % of the time on it, and otherwise scans what became due recently.
        v_again := (select l.look_again_at from leader l where l.chore = 'upkeep');
        if v_again > clock() and v_again < clock() + interval '1 hour' then
            v_ids := promote(1000, interval '30 seconds');
        else
            v_began := clock_timestamp();
            v_ids := promote(1000);
            if cardinality(v_ids) < 1000 and clock_timestamp() - v_began > interval '20 ms' then
                update leader set look_again_at = clock() + 50 * (clock_timestamp() - v_began)
                where ctid = (select l.ctid from leader l where l.chore = 'upkeep' for update skip locked);
            end if;
        end if;
        promoted := cardinality(v_ids);
        perform wake(l.queue, count(*)) from live l where l.id = any (v_ids) group by l.queue;
        select coalesce(jsonb_agg(jsonb_build_object('worker', r.worker, 'jobs', cardinality(r.ids))), '[]')
        into reclaimed from reclaim() r where r.ids <> '{}';  -- the jobs of a remaining claim may all have ended
        v_ids := array(select reclaim_orphans());
        if v_ids <> '{}' then
            reclaimed := reclaimed || jsonb_build_object('worker', null, 'jobs', cardinality(v_ids));
        end if;
        expired := expire(1000);
        perform walk_batches();
        perform announce_strays();
        perform fold_errors();
        if exists (select 1 from endings) then perform process_endings(false, 10000); end if;
        if exists (select 1 from releases) and lock_ring() then  -- last: the lock is held until the end of this transaction
            perform set_config('idle_in_transaction_session_timeout', '10ms', true);  -- an open transaction must not keep it
            perform fold_releases(next_token());
        end if;
        next_slot := (select extract(epoch from min(s.next_at) - clock()) from schedules s where not s.paused);
    end if;
end $$;
