-- Return the jobs that are claimed now: all of them, or up to p_limit that run under p_key. They are found through
-- their claims, so a backlog does not add to the cost. A job whose lease has expired counts as claimed until reclaim
-- takes it back.
create or replace function claimed_jobs(p_key text default null, p_limit integer default null) returns table (id uuid,
    task text, queue text, tenant text, keys text[], worker text, claimed_at timestamptz, expires_at timestamptz)
language plpgsql stable security definer rows 100 set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
begin
    return query select l.id, l.task, l.queue, l.tenant, l.keys, c.worker, l.claimed_at, c.expires_at
        from claims c cross join unnest(c.ids) as i(id) cross join lateral (
            select l.id, l.task::text, l.queue::text, l.tenant::text, l.claimed_at,
                   case when l.held is null then l.keys::text[]
                        else array(select unnest(l.keys) union select unnest(l.held) order by 1) end as keys
            from live l where l.id = i.id and l.token = c.token
              and (p_key is null or p_key = any (l.keys) or p_key = any (l.held)) offset 0) l
        limit p_limit;
end $$;
