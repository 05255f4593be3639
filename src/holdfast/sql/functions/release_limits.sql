-- Gives back what ended jobs held of their limits. Each has the keys it was counted under, a verdict (1 it ended well, -1
-- badly, 0 neither: given back, canceled, lost) and the keys for which a bad end counts (null: all).
-- Called by: finish, reclaim, after the jobs have moved.
-- Locks: orders that the jobs kept; limits rows, skipping locked ones: what those are owed is noted beside them, so nobody ever waits here.
--   Then notes of keys whose rows it has, which nobody else may take up meanwhile.
-- Wakes: sleepers, those on the jobs' queues first, naming the lanes and keys that may have room now. Who serves other queues
--   ("room") looks only when it knows that something of its own waits for one of the keys.
create or replace function release_limits(p_freed freed[]) returns void
language plpgsql
set search_path from current
as $$
declare
    v_ended  limit_owed[];
    v_locked text[];
    v_told   text;
begin
    v_ended := array(
        select (null, k, array_agg(f.id),
                coalesce(array_agg(f.id) filter (where f.verdict > 0), '{}'),
                coalesce(array_agg(f.id) filter (where f.verdict < 0 and coalesce(k = any (f.counts), true)), '{}'))::limit_owed
        from unnest(p_freed) f, unnest(f.keys) k group by k);
    -- A transaction with a snapshot of its own may not change what others have changed since: it leaves notes only.
    v_locked := case when current_setting('transaction_isolation') = 'read committed' then array(
        select m.key from limits m where m.key = any (array(select e.key from unnest(v_ended) e)) for update skip locked)
        else '{}' end;
    if cardinality(v_locked) < cardinality(v_ended) then
        insert into limit_owed (key, ids, well, ill)
        select e.key, e.ids, e.well, e.ill from unnest(v_ended) e
        left join unnest(v_locked) l(key) on l.key = e.key where l.key is null order by e.key;
        v_ended := array(select e from unnest(v_ended) e join unnest(v_locked) l(key) on l.key = e.key);
    end if;
    if v_locked <> '{}' and exists (select 1 from limit_owed) then  -- what ended before counts before
        perform take_owed(v_locked);
    end if;
    perform count_ended(v_ended);
    if exists (select 1 from kept_orders) then
        delete from kept_orders where key = any (array(select k from unnest(p_freed) f, unnest(f.keys) k));
    end if;
    if exists (select 1 from sleepers) then
        -- A key is named by the lane of jobs that have no other and no tenant: lanes of other tenants wait for it too.
        v_told := (select string_agg(l.lane::text, ',') from (
            select lane_of(null, array[k]) as lane from (select distinct k from unnest(p_freed) f, unnest(f.keys) k) k
            union select f.lane from unnest(p_freed) f limit 200) l);
        perform pg_notify(current_schema() || '_wake', s.worker || case when s.serves then ' lanes ' else ' room ' end || v_told)
        from (select s.worker, bool_or(s.queue = any (array(select f.queue from unnest(p_freed) f))) as serves
              from sleepers s group by s.worker order by 2 desc, random() limit 8) s;
    end if;
end $$;
