-- Count the jobs of live, later or dead by queue without reading more than p_pages pages. A smaller table is counted.
-- Of a larger one it reads half as many pages for an estimate: the last ones, where new rows are, and 25 runs spread
-- over the rest. An index would not bound the cost: behind a transaction that stays open, a scan visits every dead row.
create or replace function sample_jobs(p_table regclass, p_pages integer default 2000) returns table (queue text,
    waiting bigint, claimed bigint, oldest timestamptz, estimated boolean)
language plpgsql stable set search_path from current set jit = off set max_parallel_workers_per_gather = 0
set enable_seqscan = on set enable_indexscan = off set enable_indexonlyscan = off set enable_bitmapscan = off as $$
-- Statistics of a moment when all rows were dead say that there is no row. Then an index scan of the whole table seems
-- cheaper than a range of its pages.
declare
    c_runs constant integer := 25; v_pages bigint := pg_relation_size(p_table) / current_setting('block_size')::integer;
    v_head bigint := v_pages - p_pages / 4; v_run bigint := p_pages / 4 / c_runs;
    v_weight numeric := v_head::numeric / (c_runs * v_run);
    v_counts text := format(
        'select queue::text, count(*) filter (where not %1$s) as waiting, count(*) filter (where %1$s) as claimed, '
        'min(run_at) filter (where not %1$s) as oldest from %2$s',
        case when p_table = 'live'::regclass then '(token is not null)' else 'false' end, p_table);
begin
    -- Dynamic, so that each plan is made for the current size of the table (decision 011).
    if v_pages <= p_pages then
        return query execute format('select queue, waiting, claimed, oldest, false from (%s group by 1) c', v_counts);
    else
        return query execute format(
            'select queue, sum(waiting)::bigint, sum(claimed)::bigint, min(oldest), true from ('
            '%s where ctid >= ''(%s,0)'' group by 1 union all '
            'select queue, waiting * %s, claimed * %s, oldest from (%s) sample) c group by 1',
            v_counts, v_head, v_weight, v_weight, (
                select string_agg(format('%s where ctid >= ''(%s,0)'' and ctid < ''(%s,0)'' group by 1',
                                         v_counts, i * v_head / c_runs, i * v_head / c_runs + v_run), ' union all ')
                from generate_series(0, c_runs - 1) i));
    end if;
end $$;
