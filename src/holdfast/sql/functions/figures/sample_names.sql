-- Count the jobs of live, later or dead by task and by tenant without reading more than p_pages pages: a smaller table
-- is counted, a larger one estimated from its last pages and 25 runs of pages spread over the rest (as sample_jobs).
-- name is null for jobs without a tenant.
create or replace function sample_names(p_table regclass, p_pages integer default 400) returns table (kind text,
    name text, waiting bigint, claimed bigint, estimated boolean)
language plpgsql stable set search_path from current set jit = off set max_parallel_workers_per_gather = 0
set enable_seqscan = on set enable_indexscan = off set enable_indexonlyscan = off set enable_bitmapscan = off as $$
-- Statistics of a moment when all rows were dead say that there is no row. Then an index scan of the whole table seems
-- cheaper than a range of its pages.
declare
    c_runs constant integer := 25; v_pages bigint := pg_relation_size(p_table) / current_setting('block_size')::integer;
    v_head bigint := v_pages - p_pages / 4; v_run bigint := p_pages / 4 / c_runs; v_rows text;
begin
    v_rows := format('select task::text, tenant::text, %s as claimed, %%s as weight from %s',
                     case when p_table = 'live'::regclass then 'token is not null' else 'false' end, p_table);
    if v_pages <= p_pages then
        v_rows := format(v_rows, 1);
    else
        v_rows := format(v_rows, 1) || format(' where ctid >= ''(%s,0)''', v_head) || (
            select string_agg(' union all ' || format(v_rows, v_head::numeric / (c_runs * v_run))
                              || format(' where ctid >= ''(%s,0)'' and ctid < ''(%s,0)''',
                                        i * v_head / c_runs, i * v_head / c_runs + v_run), '')
            from generate_series(0, c_runs - 1) i);
    end if;
    -- Dynamic, so that each plan is made for the current size of the table (decision 011).
    return query execute format(
        'select case grouping(task) when 0 then ''task'' else ''tenant'' end, coalesce(task, tenant), '
        'coalesce(sum(weight) filter (where not claimed), 0)::bigint, coalesce(sum(weight) filter (where claimed), 0)::bigint, '
        '%L::boolean from (%s) r group by grouping sets ((task), (tenant))', v_pages > p_pages, v_rows);
end $$;
