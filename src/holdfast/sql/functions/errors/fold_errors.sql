-- Count the failures of error_arrivals in their groups and delete them. A task has up to 200 groups; the errors of
-- further ones are counted in its group "other". A group's example is renewed once a minute while errors arrive.
-- Locks: the advisory lock of error groups, without which it does nothing. Only its holder writes them.
create or replace function fold_errors() returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    v_most integer := 5000; v_fold folds; v_failed failed[]; v_places tid[];
    v_from xid8 := least(pg_snapshot_xmax(pg_current_snapshot()), pg_current_xact_id_if_assigned());
    v_open xid8[] := array(select x from pg_snapshot_xip(pg_current_snapshot()) x);
begin
    if not exists (select 1 from error_arrivals) or not lock_errors() then return; end if;
    select * into v_fold from folds f where f.queue = '/errors' and f.from_xid <= v_from;  -- else it was restored from another server
    v_places := array(select a.ctid from error_arrivals a where a.xid >= coalesce(v_fold.from_xid, '0') order by a.xid limit v_most)
             || array(select a.ctid from error_arrivals a where a.xid < v_fold.from_xid and a.xid = any (v_fold.open_xids) limit v_most);
    if v_places = '{}' then return; end if;
    with gone as (delete from error_arrivals where ctid = any (v_places) returning failed)
    select array_agg(f) into v_failed from gone g cross join lateral (select f from unnest(g.failed) f) f;
    perform make_error_groups(v_failed);
    with parts as materialized (
        select coalesce((select g.fingerprint from error_groups g where g.fingerprint = f.fingerprint),
                        other_errors(f.task)) as fingerprint, f.attempts, f.dead, f.job, f.at
        from unnest(v_failed) f),
    sums as materialized (
        select p.fingerprint, sum(p.attempts) as attempts, sum(p.dead) as dead, max(p.at) filter (where p.attempts > 0) as last_at,
               (array_agg(p.job order by p.at desc) filter (where p.attempts > 0))[1] as job
        from parts p group by p.fingerprint),
    examples as materialized (
        select g.fingerprint, j.id as job, j.last_error as error from sums s
        cross join lateral (
            select * from error_groups g where g.fingerprint = s.fingerprint
                and (g.example is null or g.example_at < clock() - interval '1 minute') offset 0) g
        cross join lateral (select j.id, j.last_error from jobs j where j.id = s.job offset 0) j
        where g.type = 'other' or j.last_error ->> 'fingerprint' = g.fingerprint),
    by_hour as (
        insert into error_counts as c (fingerprint, hour, attempts)
        select p.fingerprint, date_trunc('hour', p.at, 'UTC'), sum(p.attempts) from parts p
        where p.attempts > 0 and exists (select 1 from error_groups g where g.fingerprint = p.fingerprint) group by 1, 2
        on conflict (fingerprint, hour) do update set attempts = c.attempts + excluded.attempts)
    update error_groups g set attempts = g.attempts + s.attempts, dead = greatest(g.dead + s.dead, 0),
        last_at = greatest(g.last_at, s.last_at), example_job = coalesce(e.job, g.example_job),
        example = coalesce(e.error, g.example), example_at = case when e.job is null then g.example_at else clock() end
    from sums s left join examples e on e.fingerprint = s.fingerprint where g.fingerprint = s.fingerprint;
    perform move_fold('/errors', v_from, v_open, next_token(), cardinality(v_places), v_most);
end $$;
