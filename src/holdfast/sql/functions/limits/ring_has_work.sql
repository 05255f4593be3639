-- Return whether a claim of these queues needs the ring: a lane is open, or something may open one when it is folded.
-- Plain queues never need it.
create or replace function ring_has_work(p_queues text[]) returns boolean language plpgsql stable as $$
declare
    v_fold folds;
begin
    if not exists (select 1 from rings r where r.queue = any (p_queues)) then
        return exists (select 1 from arrivals a where a.queue = any (p_queues));
    elsif exists (
        select 1 from rings r cross join lateral (
            select 1 from flows s
            where s.queue = r.queue and s.priority = r.priority and s.direct = r.direct and s.open and s.tag >= r.front and s.flow <> 0 limit 1) s
        where r.queue = any (p_queues)) then
        return true;
    end if;
    for v_fold in  -- of the queues, and of releases, where anything has been folded yet
        select q.queue, coalesce(f.from_xid, '0'), coalesce(f.open_xids, '{}') from unnest(p_queues || ''::text) as q(queue)
        left join lateral (select * from folds f where f.queue = q.queue and f.from_xid <= pg_snapshot_xmax(pg_current_snapshot())) f on true
    loop
        if v_fold.queue <> '' and (
               exists (select 1 from arrivals a where a.queue = v_fold.queue and a.xid >= v_fold.from_xid)
               or exists (select 1 from arrivals a where a.queue = v_fold.queue and a.xid = any (v_fold.open_xids)))
           or v_fold.queue = '' and (
               exists (select 1 from releases r where r.xid >= v_fold.from_xid)
               or exists (select 1 from releases r where r.xid = any (v_fold.open_xids))) then
            return true;
        end if;
    end loop;
    return exists (select 1 from limits m where m.opens_at <= clock()) or exists (select 1 from reopenings);
end $$;
