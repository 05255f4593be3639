-- What the test kit adds to a test database: a clock that can be set, and a function that empties every table. Applied
-- with search_path set to the product's schema, after the migrations; never in production.

-- One row. The clock stands at stopped_at, or runs ahead of the real one by `moved` (behind it, where that is negative).
create table if not exists test_clock (moved interval not null default '0', stopped_at timestamptz);
insert into test_clock select where not exists (select from test_clock);

-- Without jit: before PostgreSQL 18, reading a table under the functions' enable_seqscan = off is costly enough to trigger it.
create or replace function clock() returns timestamptz
language sql stable parallel safe security definer set jit = off
return (select coalesce(stopped_at, clock_timestamp() + moved) from test_clock);
grant execute on function clock to public;

-- Plain jobs are inserted without a function, so the column defaults must use the same clock, at the time of the statement.
create or replace function test_statement_clock() returns timestamptz
language sql stable parallel safe security definer set jit = off
return (select coalesce(stopped_at, statement_timestamp() + moved) from test_clock);
grant execute on function test_statement_clock to public;
alter table live alter column run_at set default test_statement_clock(), alter column created_at set default test_statement_clock();

-- Rows inserted by migrations belong to the schema and stay: those of the Holdfast tables that test_tables leaves out, and of
-- the application's tables that had rows when this was applied.
create table if not exists test_settings as table settings;
create table if not exists test_kept (kept regclass primary key);

-- Returns the tables that a test may have written to, partitions included: Holdfast's, or with p_whole all.
create or replace function test_tables(p_whole boolean) returns table (name regclass, ours boolean)
language sql stable set search_path from current as $$
    select c.oid, n.nspname = current_schema()
    from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where c.relkind = 'r'
      and case when n.nspname = current_schema()
               then c.relname not in ('schema_info', 'schema_files', 'settings', 'cursor_keys', 'token_clock') and c.relname !~ '^test_'
               else p_whole and n.nspname !~ '^pg_' and n.nspname <> 'information_schema'
                    and c.oid not in (select k.kept from test_kept k) end
$$;

create or replace function test_has_rows(p_table regclass) returns boolean
language plpgsql stable as $$
declare
    v_found boolean;
begin
    execute format('select exists (select from %s)', p_table) into v_found;
    return v_found;
end $$;

insert into test_kept select t.name from test_tables(true) t where not t.ours and test_has_rows(t.name);

-- Resets the database after a test: empties Holdfast's tables and, with p_whole, the application's; resets the clock.
-- Deleting the few rows of a test takes a tenth of the time of truncate (decision 014). Truncate is for tables that have grown
-- large, even if only by dead rows, and for tables whose rows cannot be deleted.
create or replace function test_reset(p_whole boolean) returns void
language plpgsql set search_path from current set lock_timeout = '3s' as $$
declare
    v_tables regclass[] := array(select t.name from test_tables(p_whole) t);
    v_used   regclass[] := array(select t from unnest(v_tables) t where test_has_rows(t));
    v_large  boolean := exists (select from unnest(v_used) t where pg_relation_size(t) > 1000000);
begin
    if v_used <> '{}' and not v_large then
        begin  -- one statement, so that foreign keys are checked when all tables are empty
            execute (select 'with ' || string_agg(format('d%s as (delete from %s)', n, t), ', ') || ' select'
                     from unnest(v_used) with ordinality u(t, n));
        exception
            when lock_not_available then raise;
            when others then v_large := true;
        end;
    end if;
    if v_large then
        execute format('truncate %s cascade', array_to_string(v_used, ', '));
    end if;
    perform setval(s.seqrelid, s.seqstart, false)
    from pg_sequence s join pg_depend d on d.classid = 'pg_class'::regclass and d.objid = s.seqrelid
    where d.refclassid = 'pg_class'::regclass and d.refobjid = any (v_tables::oid[]) and d.deptype in ('a', 'i')
      and pg_sequence_last_value(s.seqrelid) is not null;
    if exists ((table settings except table test_settings) union all (table test_settings except table settings)) then
        delete from settings;
        insert into settings table test_settings;
    end if;
    update test_clock set moved = '0', stopped_at = null;
end $$;
