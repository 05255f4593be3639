-- Who has paused a key, when, why and until when, as a reason for why.
-- Called by: why_held.
-- Locks: none.
-- Wakes: nobody.
create or replace function why_paused(p_limit limits) returns jsonb
language sql stable
set search_path from current
as $$
    select jsonb_strip_nulls(jsonb_build_object(
        'kind', 'paused', 'rank', case when p_limit.paused_until is null then 20 else 35 end, 'key', p_limit.key,
        'by', p_limit.paused_by, 'since', p_limit.paused_at, 'until', p_limit.paused_until, 'reason', p_limit.paused_reason,
        'short', p_limit.key || ' is paused', 'text', format('%s was paused %sby %s%s, %s', p_limit.key,
            in_words(extract(epoch from clock() - p_limit.paused_at)) || ' ago ', coalesce(p_limit.paused_by, 'somebody'),
            ' (' || p_limit.paused_reason || ')',
            coalesce('for another ' || in_words(extract(epoch from p_limit.paused_until - clock())), 'until it is resumed'))))
$$;
