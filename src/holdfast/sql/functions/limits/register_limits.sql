-- Register the limits of an application's tasks when a worker starts, given as a JSON array of objects: template,
-- pattern (a LIKE pattern that matches its keys) and code (the values, see set_limit). The last worker to start wins;
-- operators' overrides stay.
-- Locks: limit_rules against concurrent changes, if something has changed.
-- Wakes: all workers, if something has changed: closed lanes may be open now.
create or replace function register_limits(p_rules jsonb) returns void
language plpgsql security definer set search_path from current set jit = off as $$
declare
    v_changed text[];
begin
    -- Values that the columns of limit_rules cannot hold are rejected before anything is changed.
    perform f.* from jsonb_to_recordset(p_rules) as g(code jsonb) cross join lateral jsonb_to_record(g.code)
        as f(concurrency integer, rate double precision, per double precision, burst double precision,
             breaker_after integer, breaker_pause double precision, breaker_cap double precision);
    perform check_limit(g.template, g.code) from jsonb_to_recordset(p_rules) as g(template text, code jsonb);
    if not exists (
        select 1 from jsonb_to_recordset(p_rules) as g(template text, pattern text, code jsonb)
        where not exists (select 1 from limit_rules r
                          where r.template = g.template and r.pattern = g.pattern and r.code = g.code)
           or exists (select 1 from limit_rules r where r.pattern = g.pattern and r.template <> g.template)) then
        return;
    end if;
    lock table limit_rules in share row exclusive mode;
    with given as materialized (
        select * from jsonb_to_recordset(p_rules) as g(template text, pattern text, code jsonb)),
    -- One rule per pattern: if its argument was renamed, the rule under the old name could win.
    renamed as (
        delete from limit_rules r using given g where r.pattern = g.pattern and r.template <> g.template
        returning r.pattern, r.override),
    placed as (
        insert into limit_rules as r (template, pattern, code, override, updated_at)
        select g.template, g.pattern, g.code,
               coalesce((select o.override from renamed o where o.pattern = g.pattern limit 1), '{}'), clock()
        from given g
        on conflict (template) do update
            set pattern = excluded.pattern, code = excluded.code, updated_at = excluded.updated_at,
                version = case when r.pattern = excluded.pattern then r.version else nextval('rule_version') end
            where (r.pattern, r.code) is distinct from (excluded.pattern, excluded.code)
        returning r.pattern)
    select array_agg(c.pattern) into v_changed from (select pattern from placed union select pattern from renamed) c;
    if v_changed is not null then perform touch_limit(null); end if;
end $$;
