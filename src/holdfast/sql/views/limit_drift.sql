-- The keys whose count of running jobs is wrong; normally none. It compares the limits row, less the releases not yet
-- folded, with the claimed jobs that hold the key. One snapshot is used, so jobs that start and end meanwhile are no
-- drift.
create or replace view limit_drift as
select key, counted, actual from (
    select u.key, sum(u.counted)::bigint as counted, sum(u.actual)::bigint as actual
    from (select m.key, m.running as counted, 0 as actual from limits m where m.running <> 0
          union all select o.key, -o.jobs, 0 from releases r cross join unnest(r.ended) o where o.jobs <> 0
          -- an order that a waiting job keeps; if that job runs again, its claim counts
          union all select o.key, 0, 1 from kept_orders o where (select l.token from live l where l.id = o.id) is null
          union all select k.key, 0, 1 from claimed_jobs() c cross join unnest(c.keys) as k(key)) u
    group by u.key) s
where counted <> actual order by key;
