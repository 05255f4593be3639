-- Store a minute that is over: its attempts by queue, and the jobs that each queue had at its end. Do nothing if it
-- was stored before.
-- Locks: gives up after 0.1 s if an open transaction has stored the same minute.
create or replace function close_minute(p_minute timestamptz) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set lock_timeout = '100ms' as $$
begin
    if exists (select 1 from minutes m where m.minute = p_minute) then return; end if;
    insert into minutes (minute, queue, ended, failed, lost, run_seconds, p50, p95, p99, ready, running, later, dead)
    select p_minute, coalesce(d.queue, a.queue), coalesce(a.ended, 0), coalesce(a.failed, 0), coalesce(a.lost, 0),
           coalesce(a.run_seconds, 0), wait_at(a.steps, a.counts, 0.5), wait_at(a.steps, a.counts, 0.95), wait_at(a.steps, a.counts, 0.99),
           d.ready, d.running, d.later, d.dead
    from (select d.* from (
              select s.figures from snapshots s where s.at >= p_minute and s.at < p_minute + interval '1 minute'
              order by s.at desc limit 1) s
          cross join jsonb_to_recordset(s.figures -> 'queues') as d(
              queue text, ready bigint, running bigint, later bigint, dead bigint)) d
    full join (
        select w.queue, sum(w.ended) as ended, sum(w.failed) as failed, sum(w.lost) as lost,
               sum(w.run_seconds) as run_seconds, array_agg(w.wait) as steps, array_agg(w.ended) as counts
        from (select c.queue, c.wait, sum(c.ended) as ended, sum(c.failed) as failed, sum(c.lost) as lost,
                     sum(c.run_seconds) as run_seconds
              from attempt_counts c where c.minute = p_minute group by c.queue, c.wait) w
        group by w.queue) a on a.queue = d.queue
    on conflict do nothing;
exception when lock_not_available then null;
end $$;
