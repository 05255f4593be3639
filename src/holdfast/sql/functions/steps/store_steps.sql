-- Store steps that have ended: an array of {"id", "token", "name", "result", "attempt", "seconds" (it took), "undo"}.
-- A result keeps its text, which jsonb would change: later runs must iterate over it in the same order as the first.
-- Return for each, by its place from 1 on: stored; existing (the job has a step of that name: the first one stays);
-- lost (the token is no longer the job's); locked (another transaction holds the job's row: to be sent again). p_hold:
-- the job cannot be reclaimed before the caller's transaction has ended, whose other rows belong to the step.
-- Locks: live rows of jobs without steps so far, and with p_hold of all, skipping locked ones; rows of steps, which
--   wait only for a stale worker's open transaction: 100 ms at most, and then one by one.
create or replace function store_steps(p_steps json, p_hold boolean default false) returns table (place integer, outcome text)
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off set lock_timeout = '100ms' set plan_cache_mode = force_generic_plan as $$
#variable_conflict use_column
declare
    v_step record; v_outcomes text[];
begin
    -- Into a variable: rows that were returned would stay if the statement fails at its end.
    with given as materialized (
        select g.* from rows from (json_to_recordset(p_steps) as (
            id uuid, token bigint, name text, result json, undo jsonb, attempt smallint, seconds double precision))
            with ordinality as g(id, token, name, result, undo, attempt, seconds, place)),
    held as materialized (
        select g.*, l.ctid as at, l.durable, l.free from given g cross join lateral (
            select l.ctid, l.durable, case
                       when l.durable is not true then (
                           select true from live f where f.ctid = l.ctid and f.token = g.token for update skip locked)
                       when p_hold then (
                           select true from live f where f.ctid = l.ctid and f.token = g.token for key share skip locked)
                       else true end as free
            from live l where l.id = g.id and l.token = g.token offset 0) l),
    marked as (
        update live set durable = true where token is not null and ctid = any (array(
            select distinct h.at from held h where h.free and h.durable is not true))),
    placed as (
        insert into steps (job, name, kind, result, undo, attempt, started_at, finished_at, check_at)
        select h.id, h.name, 'step', nullif(h.result::text, 'null')::json, nullif(h.undo, 'null'), h.attempt,
               clock() - make_interval(secs => least(greatest(h.seconds, 0), 1e9)), clock(),
               case when h.durable is not true then clock() + interval '1 day' end
        from held h where h.free order by h.id, h.place
        on conflict do nothing returning job, name)
    select array_agg(case when not exists (select 1 from held h where h.place = g.place) then 'lost'
                when exists (select 1 from held h where h.place = g.place and h.free is not true) then 'locked'
                when exists (select 1 from placed p where p.job = g.id and p.name = g.name) then 'stored'
                else 'existing' end order by g.place) into v_outcomes
    from given g;
    return query select u.place::integer, u.outcome from unnest(v_outcomes) with ordinality u(outcome, place);
exception when lock_not_available then
    if json_array_length(p_steps) = 1 then
        return query select 1, 'locked';
        return;
    end if;
    for v_step in select s.value, s.ordinality from json_array_elements(p_steps) with ordinality s loop
        return query select v_step.ordinality::integer, s.outcome from store_steps(json_build_array(v_step.value), p_hold) s;
    end loop;
end $$;
