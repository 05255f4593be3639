-- Count the jobs of each queue by table, and how long the oldest due job has waited, at a cost that does not grow with
-- the tables. Tables of up to 2,000 pages (16 MB) are counted. For larger ones the counts are estimates (sample_jobs),
-- except for queues with few due jobs and for running jobs; oldest_wait is then a lower bound. `estimated` names the
-- columns that hold estimates.
create or replace function count_jobs() returns table (queue text, ready bigint, running bigint, later bigint,
    dead bigint, oldest_wait interval, estimated text[])
language plpgsql stable security definer rows 10 set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
#variable_conflict use_column
declare
    c_running constant integer := 10000; v_queues text[] := '{}'; v_most bigint; v_claimed bigint;
begin
    -- Dead rows that cannot be removed yet slow down every index scan; with many of them, only the sample is used.
    if pg_relation_size('live') > 2000 * current_setting('block_size')::integer
       and pg_stat_get_dead_tuples('live'::regclass) < 50000 then
        v_queues := array(
            with recursive names as (
                select min(l.queue)::text as queue, 1 as place from live l
                union all select (select min(l.queue)::text from live l where l.queue > n.queue), n.place + 1
                from names n where n.queue is not null and n.place < 1000)
            select n.queue from names n where n.queue is not null);
        v_most := least(1000, 20000 / greatest(cardinality(v_queues), 1));
        if pg_stat_get_dead_tuples('claims'::regclass) < 50000 then
            v_claimed := (select count(*) from claimed_jobs(null, c_running));
        end if;
    end if;
    return query
        with sampled as (
            select 'live' as place, s.* from sample_jobs('live') s
            union all select 'later', s.* from sample_jobs('later') s
            union all select 'dead', s.* from sample_jobs('dead') s),
        sums as (
            select s.queue, sum(s.waiting) filter (where s.place = 'live') as ready, sum(s.claimed) as running,
                   sum(s.waiting) filter (where s.place = 'later') as later,
                   sum(s.waiting) filter (where s.place = 'dead') as dead,
                   min(s.oldest) filter (where s.place = 'live') as oldest
            from sampled s group by 1),
        few as materialized (
            select u.queue, w.* from unnest(v_queues) u(queue) cross join lateral (
                select count(*) as ready, min(c.run_at) as oldest from (
                    select l.run_at from live l where l.queue = u.queue and l.token is null limit v_most) c) w),
        claimed as materialized (
            select c.queue, count(*) as running from claimed_jobs(null, c_running) c where v_claimed < c_running group by 1),
        first as materialized (  -- ids grow with time, so the job that has waited longest is among the first
            select f.queue, min(f.run_at) as run_at from (
                select l.queue::text, l.run_at from live l
                where v_queues <> '{}' and l.token is null order by l.id limit 1000) f group by 1),
        places as (select array_agg(distinct s.place) filter (where s.estimated) as sampled from sampled s),
        found as (select queue from sums union select queue from few)
        select f.queue, case when w.ready < v_most then w.ready else greatest(s.ready, w.ready, 0)::bigint end,
               case when v_claimed < c_running then coalesce(c.running, 0) else coalesce(s.running, 0)::bigint end,
               coalesce(s.later, 0)::bigint, coalesce(s.dead, 0)::bigint, clock() - least(s.oldest, w.oldest, o.run_at),
               array_remove(array[
                   case when 'live' = any (p.sampled) and (w.ready < v_most) is not true then 'ready' end,
                   case when 'live' = any (p.sampled) and (v_claimed < c_running) is not true then 'running' end,
                   case when 'later' = any (p.sampled) then 'later' end,
                   case when 'dead' = any (p.sampled) then 'dead' end,
                   case when 'live' = any (p.sampled) and (w.ready < v_most) is not true then 'oldest_wait' end], null)
        from places p cross join found f left join sums s on s.queue = f.queue left join few w on w.queue = f.queue
        left join claimed c on c.queue = f.queue left join first o on o.queue = f.queue;
end $$;
