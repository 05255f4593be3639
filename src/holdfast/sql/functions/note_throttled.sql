-- Adds to the count of how often claims stepped over work because of a key: [{"key", "tenant", "count"}], tenant null for
-- work without one.
-- Called by: workers, now and then, with what they have gathered.
-- Locks: throttled rows in the order of key and tenant.
-- Wakes: nobody.
create or replace function note_throttled(p_counts jsonb) returns void
language plpgsql security definer
set search_path from current
as $$
begin
    insert into throttled as t (key, tenant, count, last_at)
    select g.key, coalesce(g.tenant, ''), sum(g.count), clock()
    from jsonb_to_recordset(p_counts) as g(key text, tenant text, count bigint)
    where g.key is not null and g.count > 0
    group by 1, 2 order by 1, 2
    on conflict (key, tenant) do update set count = t.count + excluded.count, last_at = excluded.last_at;
end $$;
