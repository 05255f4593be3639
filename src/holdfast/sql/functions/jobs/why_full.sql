-- Returns the jobs that hold a key without room, up to five, as a reason for why.
create or replace function why_full(p_key text, p_running integer, p_concurrency integer) returns jsonb
language sql stable
set search_path from current
as $$
    select jsonb_build_object(
        'kind', 'concurrency', 'rank', 50, 'key', p_key, 'running', p_running, 'concurrency', p_concurrency,
        'short', p_key || ' is full', 'holders', coalesce(jsonb_agg(jsonb_build_object(
            'id', c.id, 'task', c.task, 'worker', c.worker, 'since', c.claimed_at,
            'lease_until', c.expires_at, 'lost', c.expires_at <= clock()) order by c.claimed_at, c.id), '[]'),
        'text', coalesce(
            (select format('%s goes one at a time: job %s comes first, and waits for another attempt', p_key, o.id)
             from kept_orders o where o.key = p_key and (select l.token from live l where l.id = o.id) is null),
            format('%s runs %s of %s', p_key, p_running, p_concurrency)
            || coalesce(': ' || string_agg(format('job %s on %s for %s', c.id, c.worker,
                   in_words(extract(epoch from clock() - c.claimed_at)))
                   || case when c.expires_at > clock() then '' else format(' (its lease ran out %s ago: it is about to be taken back)',
                          in_words(extract(epoch from clock() - c.expires_at))) end, ', ' order by c.n) filter (where c.n <= 2), '')
            || case when p_running > 2 then format(' and %s more', p_running - 2) else '' end))
    from (select *, row_number() over (order by claimed_at, id) as n from claimed_jobs(p_key, 5)) c
$$;
