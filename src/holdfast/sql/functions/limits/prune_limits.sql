-- Remove unused rows of limits: keys not used for a day (orders: an hour), throttle counts older than p_oldest, and
-- lanes and flows that have been empty for an hour. Return how many rows it removed. A key is removed only if a new
-- row would be equivalent: nothing runs, is paused or set by an operator, the rate's bucket is full, and the breaker is
-- closed without failures. After a week without activity the breaker's state is ignored.
-- Locks: the ring's lock, without which it does nothing; limit_settings and throttled rows, skipping locked ones.
create or replace function prune_limits(p_limit integer, p_oldest timestamptz) returns integer
language plpgsql set search_path from current set jit = off set enable_seqscan = off as $$
declare
    v_now timestamptz := clock();
    v_old bigint := ((date_part('epoch', v_now - interval '1 hour') * 1000000)::bigint + clock_lead()) << 10;  -- as next_token()
    v_keys text[]; v_gone integer; v_rows integer; v_table text; v_unused text;
begin
    if not lock_ring() then return 0; end if;
    perform set_config('idle_in_transaction_session_timeout', '10ms', true);  -- an open transaction must not keep the ring's lock
    perform fold_releases(next_token());
    delete from limit_settings where ctid = any (array(  -- expired pauses
        select s.ctid from limit_settings s where s.override = '{}' and s.paused_until < v_now - interval '1 day' limit p_limit for update skip locked));
    -- Tables of more than 100 pages are sampled, so that a million keys are not read every minute. The candidates come
    -- first: a join of the sample and the view was made from every key to every key.
    v_keys := array(
        select m.key from limits m tablesample system (least(100, 81920000.0 / greatest(pg_relation_size('limits'), 1)))
        where m.running = 0 and m.opens_at is null
          and greatest(m.created_at, m.last_success_at, m.last_failure_at, m.tokens_at)
              < v_now - case when m.kind = 'order' then interval '1 hour' else interval '1 day' end);
    delete from limits where key = any (array(
        select s.key from limit_state s
        where s.key = any (v_keys) and s.override is null and (s.rate is null or s.free_tokens >= s.burst)
          and (s.breaker_after is null or s.failure_streak = 0 and s.open_until is null
               or greatest(s.last_failure_at, s.open_until) < v_now - interval '7 days')
          and not exists (select 1 from lanes l where l.closed_by = s.key)
        limit p_limit));
    get diagnostics v_gone = row_count;
    for v_table, v_unused in values
        ('throttled', 't.last_at < $3'),
        ('lanes', 'not t.open and t.closed_by is null and coalesce(t.closed_at, 0) < $4'),
        ('flows', 'not t.open and t.tag < $4')
    loop
        execute format('delete from %1$I where ctid = any (array(select t.ctid from %1$I t tablesample system ($1) '
                       'where %2$s limit $2 for update skip locked))', v_table, v_unused)
        using least(100, 409600000.0 / greatest(pg_relation_size(v_table), 1)), p_limit, p_oldest, v_old;
        get diagnostics v_rows = row_count;
        v_gone := v_gone + v_rows;
    end loop;
    return v_gone;
end $$;
