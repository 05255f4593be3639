-- Return those of the given jobs that a caller may see, in all tables; without p_deliveries, no webhook deliveries.
-- The service applies it before it changes jobs: cancel(seen_jobs(...)). Messages and deliveries are jobs too.
create or replace function seen_jobs(p_everyone boolean, p_who text, p_deliveries boolean, p_ids uuid[]) returns uuid[]
language plpgsql stable security definer set search_path from current set jit = off set enable_seqscan = off
set enable_bitmapscan = off as $$
begin
    return array(
        select t.id from live t where t.id = any (p_ids) and may_see(p_everyone, p_who, t.tenant) and (p_deliveries or t.task <> 'holdfast.webhook')
        union select t.id from later t where t.id = any (p_ids) and may_see(p_everyone, p_who, t.tenant) and (p_deliveries or t.task <> 'holdfast.webhook')
        union select t.id from dead t where t.id = any (p_ids) and may_see(p_everyone, p_who, t.tenant) and (p_deliveries or t.task <> 'holdfast.webhook')
        union select t.id from history t where t.id = any (p_ids) and may_see(p_everyone, p_who, t.tenant) and (p_deliveries or t.task <> 'holdfast.webhook'));
end $$;
