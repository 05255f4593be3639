-- Why a key's breaker lets nothing through, as a reason for why.
-- Called by: why_held.
-- Locks: none.
-- Wakes: nobody.
create or replace function why_open(p_limit limits) returns jsonb
language sql stable
set search_path from current
as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'kind', 'breaker', 'rank', 40, 'key', p_limit.key, 'short', 'the breaker of ' || p_limit.key,
        'state', case when p_limit.open_until > clock() then 'open' else 'half-open' end, 'open_until', p_limit.open_until,
        'failure_streak', p_limit.failure_streak, 'last_failure_at', p_limit.last_failure_at, 'probe', p_limit.probe,
        'text', case when p_limit.open_until > clock() then
            format('the breaker of %s is open after %s failures in a row: one job may try again in %s', p_limit.key,
                   p_limit.failure_streak, in_words(extract(epoch from p_limit.open_until - clock())))
            else format('the breaker of %s is half open: job %s is trying whether it works again', p_limit.key, p_limit.probe) end))
$$;
