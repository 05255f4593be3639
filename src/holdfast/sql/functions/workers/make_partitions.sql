-- Create history's partitions for today and the days ahead. Return how many it created.
-- Locks: history, while it attaches a partition; gives up after 100 ms so that workers do not queue up behind it.
create or replace function make_partitions() returns integer
language plpgsql security definer set search_path from current set lock_timeout = '100ms' set timezone = 'UTC' as $$
declare
    v_day date; v_name text; v_made integer := 0; v_rows bigint; v_that_day text;
begin
    for v_day in select clock()::date + i
                 from generate_series(0, (select value::integer from settings where name = 'partitions_ahead_days')) i
    loop
        v_name := 'history_' || to_char(v_day, 'YYYYMMDD');
        if to_regclass(quote_ident(current_schema()) || '.' || v_name) is null then
            -- Rows of that day may be in the default partition. Up to 10,000 are moved; moving more would block every worker,
            -- so such a day stays in the default partition until retention removes it.
            lock table history_default in access exclusive mode;
            v_that_day := format('from history_default where finished_at >= %L and finished_at < %L',
                                 v_day::timestamptz, (v_day + 1)::timestamptz);
            execute format('select count(*) from (select %s limit 10001) few', v_that_day) into v_rows;
            continue when v_rows > 10000;
            execute format('create table %I (like history including all)', v_name);
            execute format('with moved as (delete %s returning *) insert into %I select * from moved', v_that_day, v_name);
            execute format('alter table history attach partition %I for values from (%L) to (%L)',
                           v_name, v_day::timestamptz, (v_day + 1)::timestamptz);
            v_made := v_made + 1;
        end if;
    end loop;
    return v_made;
end $$;
