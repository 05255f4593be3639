-- Return which of these jobs still have this token. Of the ids that finish() returned, these were locked by another
-- transaction; the rest belong to another worker.
create or replace function held_jobs(p_ids uuid[], p_tokens bigint[]) returns setof uuid
language plpgsql stable security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
begin
    return query
        select g.id from unnest(p_ids, p_tokens) as g(id, token) cross join lateral (
            select 1 from live l where l.id = g.id and l.token = g.token offset 0) l;
end $$;
