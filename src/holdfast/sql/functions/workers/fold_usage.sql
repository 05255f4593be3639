-- Sum earlier usage, so that a page which sums days reads few rows: those of minutes and connections become one of ten
-- minutes for each tenant and task (backend 0) after ten minutes, and one of an hour after two hours. Look six hours
-- back; what a long outage of upkeep has left stays as it is. Return how many rows it replaced.
-- Locks: rows of earlier minutes, which nothing else writes, skipping locked ones; then the rows of their sums.
create or replace function fold_usage(p_limit integer) returns integer
language plpgsql set search_path from current set timezone = 'UTC' set jit = off set enable_seqscan = off as $$
declare
    v_unit interval; v_after interval; v_rows integer; v_all integer := 0;
begin
    for v_unit, v_after in values (interval '10 minutes', interval '10 minutes'), (interval '1 hour', interval '2 hours') loop
        with folded as (
            delete from usage_counts where ctid = any (array(
                select u.ctid from usage_counts u
                where u.minute >= clock() - interval '6 hours' and u.minute < date_bin(v_unit, clock() - v_after, '2000-01-01')
                  and (u.backend <> 0 or u.minute <> date_bin(v_unit, u.minute, '2000-01-01'))
                order by u.minute limit p_limit for update skip locked))
            returning minute, tenant, task, runs, failures, run_seconds, queue_seconds),
        summed as (
            insert into usage_counts as c (minute, tenant, task, backend, runs, failures, run_seconds, queue_seconds)
            select date_bin(v_unit, f.minute, '2000-01-01'), f.tenant, f.task, 0,
                   sum(f.runs), sum(f.failures), sum(f.run_seconds), sum(f.queue_seconds)
            from folded f group by 1, 2, 3 order by 1, 2, 3
            on conflict (minute, tenant, task, backend) do update set
                runs = c.runs + excluded.runs, failures = c.failures + excluded.failures,
                run_seconds = c.run_seconds + excluded.run_seconds, queue_seconds = c.queue_seconds + excluded.queue_seconds)
        select count(*) into v_rows from folded;
        v_all := v_all + v_rows;
    end loop;
    return v_all;
end $$;
