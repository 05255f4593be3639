-- Makes the limits of an application's tasks known, given as a JSON array of objects: template, pattern (what LIKE finds
-- its keys by) and code (the numbers, see set_limit). The last to start wins; what operators said of a rule stays.
-- Called by: workers when they start.
-- Locks: when something has changed, limit_rules against others who change them.
-- Wakes: all workers, when something has changed: what was closed may be open now.
create or replace function register_limits(p_rules jsonb) returns void
language plpgsql security definer
set search_path from current set jit = off
as $$
declare
    v_changed text[];
begin
    -- What the columns of limit_rules could not hold is refused before anything is changed.
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
    -- One rule for each pattern: the argument may have got another name, and the rule under the old one could win.
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
    select array_agg(c.pattern) into v_changed
    from (select pattern from placed union select pattern from renamed) c;
    if v_changed is not null then
        perform touch_limit(null);
    end if;
end $$;
