-- The pauses, breakers, counts and rates that keep a job from starting, by key, as reasons for why. A
-- job that is not due yet (p_late) is told of what will still hold then, not of what changes every second.
-- Called by: why_waiting.
-- Locks: none.
-- Wakes: nobody.
create or replace function why_held(p_queue text, p_task text, p_tenant text, p_keys text[], p_late boolean) returns jsonb
language plpgsql stable
set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    v_limit limits;
    v_used  integer;
    v_wait  double precision;
    v_found jsonb := '[]';
begin
    for v_limit in
        select m.* from limits m where m.key = any (p_keys || implicit_keys(p_queue, p_task, p_tenant)) order by m.key
    loop
        if v_limit.paused and (v_limit.paused_until is null or v_limit.paused_until > clock()) then
            v_found := v_found || why_paused(v_limit);
        end if;
        if v_limit.open_until > clock() or (v_limit.open_until is not null and v_limit.probe is not null) then
            v_found := v_found || why_open(v_limit);
        end if;
        v_used := v_limit.running - (select coalesce(sum(cardinality(o.ids)), 0) from limit_owed o where o.key = v_limit.key);
        if v_limit.concurrency = 0 then
            v_found := v_found || jsonb_build_object('kind', 'concurrency', 'rank', 21, 'key', v_limit.key,
                'running', v_used, 'concurrency', 0, 'short', 'a concurrency of 0',
                'text', format('%s has a concurrency of 0: nothing starts under it', v_limit.key));
        elsif v_used >= v_limit.concurrency and not p_late then
            v_found := v_found || why_full(v_limit.key, v_used, v_limit.concurrency);
        end if;
        v_wait := (select (1 - s.free_tokens) * s.per / s.rate from limit_state s where s.key = v_limit.key);
        if v_wait > 0 and not p_late then
            v_found := v_found || jsonb_build_object('kind', 'rate', 'rank', 60, 'key', v_limit.key, 'rate', v_limit.rate,
                'per', v_limit.per, 'burst', v_limit.burst, 'in_seconds', v_wait, 'short', 'the rate of ' || v_limit.key,
                'text', format('%s may start %s in %s: the next start is free in %s', v_limit.key, v_limit.rate,
                               in_words(v_limit.per), in_words(v_wait)));
        end if;
    end loop;
    return v_found;
end $$;
