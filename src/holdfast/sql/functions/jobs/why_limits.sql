-- Return the pauses, breakers, counts and rates that keep a job from starting, by key, as reasons for why. For a job
-- that is not due yet (p_late), only those that will still apply then. A key without room names up to five jobs that
-- hold it; one with a concurrency of 0, who set it, and for which key or rule (set_for).
create or replace function why_limits(p_queue text, p_task text, p_tenant text, p_keys text[], p_late boolean)
    returns jsonb
language plpgsql stable set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off
as $$
declare
    v_limit record; v_found jsonb := '[]';
begin
    for v_limit in
        select m.* from limit_use m where m.key = any (p_keys || array['queue:' || p_queue, 'task:' || p_task, 'tenant:' || p_tenant]) order by m.key
    loop
        if v_limit.paused then
            v_found := v_found || jsonb_strip_nulls(jsonb_build_object(
                    'kind', 'paused', 'rank', case when v_limit.paused_until is null then 20 else 35 end, 'key', v_limit.key,
                    'by', v_limit.paused_by, 'since', v_limit.paused_at, 'until', v_limit.paused_until, 'reason', v_limit.paused_reason,
                    'short', v_limit.key || ' is paused', 'text', format('%s was paused %sby %s%s, %s', v_limit.key,
                        in_words(clock() - v_limit.paused_at) || ' ago ', coalesce(v_limit.paused_by, 'an operator'),
                        ' (' || v_limit.paused_reason || ')',
                        coalesce('for another ' || in_words(v_limit.paused_until - clock()), 'until it is resumed'))));
        end if;
        if v_limit.open_until > clock() or (v_limit.open_until is not null and v_limit.probe is not null) then
            v_found := v_found || jsonb_strip_nulls(jsonb_build_object(
                    'kind', 'breaker', 'rank', 40, 'key', v_limit.key, 'short', 'the breaker of ' || v_limit.key,
                    'state', case when v_limit.open_until > clock() then 'open' else 'half-open' end, 'open_until', v_limit.open_until,
                    'failure_streak', v_limit.failure_streak, 'last_failure_at', v_limit.last_failure_at, 'probe', v_limit.probe,
                    'text', case when v_limit.open_until > clock() then
                        format('the breaker of %s is open after %s failures in a row: one job may try again in %s', v_limit.key,
                               v_limit.failure_streak, in_words(v_limit.open_until - clock()))
                        else format('the breaker of %s is half open: job %s is trying whether it works again', v_limit.key, v_limit.probe) end));
        end if;
        if v_limit.concurrency = 0 then
            v_found := v_found || (
                select jsonb_strip_nulls(jsonb_build_object('kind', 'concurrency', 'rank', 21, 'key', v_limit.key,
                    'running', v_limit.running, 'concurrency', 0, 'set_for', s.key, 'by', s.by, 'since', s.at,
                    'short', 'a concurrency of 0', 'text', format('%s has a concurrency of 0%s: nothing starts under it', v_limit.key,
                        ', set ' || in_words(clock() - s.at) || ' ago by ' || s.by)))
                from (select 1) one left join (
                    select v_limit.key, v_limit.changed_by as by, v_limit.changed_at as at, 1 as place where v_limit.override ? 'concurrency'
                    union all
                    select r.template, r.override ->> 'by', (r.override ->> 'at')::timestamptz, 2 from limit_rules r
                    where r.template = v_limit.template and r.override ? 'concurrency'
                    order by place limit 1) s on true);
        elsif v_limit.running >= v_limit.concurrency and not p_late then
            v_found := v_found || (
                select jsonb_build_object(
                    'kind', 'concurrency', 'rank', 50, 'key', v_limit.key, 'running', v_limit.running, 'concurrency', v_limit.concurrency,
                    'short', v_limit.key || ' is full', 'holders', coalesce(jsonb_agg(jsonb_build_object(
                        'id', c.id, 'task', c.task, 'worker', c.worker, 'since', c.claimed_at,
                        'lease_until', c.expires_at, 'lost', c.expires_at <= clock()) order by c.claimed_at, c.id), '[]'),
                    'text', coalesce(
                        (select format('%s goes one at a time: job %s comes first, and waits for another attempt', v_limit.key, o.id)
                         from kept_orders o where o.key = v_limit.key and (select l.token from live l where l.id = o.id) is null),
                        format('%s runs %s of %s', v_limit.key, v_limit.running, v_limit.concurrency)
                        || coalesce(': ' || string_agg(format('job %s on %s for %s', c.id, c.worker,
                               in_words(clock() - c.claimed_at))
                               || case when c.expires_at > clock() then '' else format(' (its lease ran out %s ago: it will be reclaimed)',
                                      in_words(clock() - c.expires_at)) end, ', ' order by c.n) filter (where c.n <= 2), '')
                        || case when v_limit.running > 2 then format(' and %s more', v_limit.running - 2) else '' end))
                from (select *, row_number() over (order by claimed_at, id) as n from claimed_jobs(v_limit.key, 5)) c);
        end if;
        if v_limit.next_token > 0 and not p_late then
            v_found := v_found || jsonb_build_object('kind', 'rate', 'rank', 60, 'key', v_limit.key, 'rate', v_limit.rate,
                'per', v_limit.per, 'burst', v_limit.burst, 'in_seconds', v_limit.next_token, 'short', 'the rate of ' || v_limit.key,
                'text', format('%s may start %s in %s: the next start is free in %s', v_limit.key, v_limit.rate,
                               in_words(make_interval(secs => v_limit.per)), in_words(make_interval(secs => v_limit.next_token))));
        end if;
    end loop;
    return v_found;
end $$;
