-- Fold releases since the last claim into the limits: subtract ended jobs, advance breakers, and open lanes whose key
-- has room again, was changed by an operator, or opens at this time. The caller holds the ring's lock.
create or replace function fold_releases(p_token bigint) returns void
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_hashjoin = off
set enable_mergejoin = off set enable_bitmapscan = off set plan_cache_mode = force_generic_plan as $$
declare
    v_most integer := 1000; v_fold folds;
    v_from xid8 := least(pg_snapshot_xmax(pg_current_snapshot()), pg_current_xact_id_if_assigned());
    v_open xid8[] := array(select x from pg_snapshot_xip(pg_current_snapshot()) x); v_places tid[];
    v_ended released[] := '{}'; v_keys text[] := '{}'; v_after text; v_more text[]; v_over text[];
begin
    select * into v_fold from folds f where f.queue = '' and f.from_xid <= v_from;  -- else it was restored from another server
    v_places := array(select r.ctid from releases r where r.xid >= coalesce(v_fold.from_xid, '0') order by r.xid limit v_most)
             || array(select r.ctid from releases r where r.xid < v_fold.from_xid and r.xid = any (v_fold.open_xids) limit v_most);
    if v_places <> '{}' then
        with gone as (delete from releases where ctid = any (v_places) returning id, ended)
        select array_agg(e.ended order by g.id) into v_ended from gone g cross join lateral (select e as ended from unnest(g.ended) e) e;
        v_keys := array(select distinct e.key from unnest(v_ended) e);
        perform make_limits(array(select k.key from unnest(v_keys) as k(key) where (select true from limit_settings s where s.key = k.key)
                                  union select e.key from unnest(v_ended) e where e.jobs < 0));  -- a repair: jobs run under it
        perform end_under_limits(v_ended);
        perform move_fold('', v_from, v_open, p_token, cardinality(v_places), v_most);
    end if;
    with due as (
        update limits m set opens_at = null where m.ctid = any (array(
            select d.ctid from limits d where d.opens_at <= clock() order by d.opens_at limit 1000))
        returning m.key)
    select v_keys || coalesce(array_agg(d.key), '{}') into v_keys from due d;
    select r.after into v_after from reopenings r limit 1;
    if found then
        v_more := array(  -- from key to key, each found by one look into the index
            with recursive closed(key, n) as (
                (select l.closed_by, 1 from lanes l where l.closed_by > v_after order by l.closed_by limit 1)
                union all
                select s.key, c.n + 1 from closed c cross join lateral (
                    select l.closed_by as key from lanes l where l.closed_by > c.key order by l.closed_by limit 1) s
                where c.n < 1000)
            select c.key from closed c order by c.n);
        delete from reopenings;
        if cardinality(v_more) = 1000 then insert into reopenings values (v_more[1000]); end if;
        update limits m set template = rule_of(m.key), version = v.version  -- once, not at each look
        from (select coalesce(max(r.version), 0) as version from limit_rules r) v cross join unnest(v_more) as k(key) where m.key = k.key and m.version <> v.version;
        v_keys := v_keys || v_more;
    end if;
    if v_keys <> '{}' then perform reopen_lanes(array(select distinct k from unnest(v_keys) k), p_token); end if;
    v_over := array(select distinct e.key from unnest(v_ended) e where e.jobs = 0 or e.key like 'queue:%');
    if v_over <> '{}' then  -- of a queue, a task or a tenant without limits: such rows concern every claim
        delete from limits where ctid = any (array(
            select m.place from unnest(v_over) as k(key) cross join lateral (
                select m.ctid as place from limits m
                where m.key = k.key and m.kind in ('queue', 'task', 'tenant') and m.running = 0 and m.opens_at is null offset 0) m
            cross join lateral (select 1 from limit_state s where s.key = k.key and s.override is null and not s.says offset 0) s
            where (select true from lanes l where l.closed_by = k.key limit 1) is null));
    end if;
end $$;
