-- Release claimed jobs unrun, for workers that stop; their attempts are refunded. Return the ids
-- whose token was no longer the job's.
-- Locks: as finish. Wakes: sleepers of the jobs' queues.
create or replace function release(p_ids uuid[], p_tokens bigint[]) returns setof uuid
language sql security definer set search_path from current as $$
    select finish('{}', '{}', (select coalesce(jsonb_agg(jsonb_build_object(
        'id', g.id, 'token', g.token, 'outcome', 'released')), '[]') from unnest(p_ids, p_tokens) as g(id, token)))
$$;
