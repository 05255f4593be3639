-- Gives claimed jobs back unrun, their attempts refunded. Answers with the ids whose token was no longer theirs.
-- Called by: workers that stop, for what they claimed and did not start.
-- Locks: as finish.
-- Wakes: sleepers of the jobs' queues.
create or replace function release(p_ids uuid[], p_tokens bigint[]) returns setof uuid
language sql security definer
set search_path from current
as $$
    select finish('{}', '{}', (select coalesce(jsonb_agg(jsonb_build_object(
        'id', g.id, 'token', g.token, 'outcome', 'released')), '[]')
        from unnest(p_ids, p_tokens) as g(id, token)))
$$;
