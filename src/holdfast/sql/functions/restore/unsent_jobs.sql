-- Return messages of the outbox and deliveries of webhooks from before a restore that wait for their first attempt and
-- are not marked as perhaps sent.
-- Locks: the jobs' rows in id order, skipping locked ones.
create or replace function unsent_jobs(p_before timestamptz, p_most integer)
    returns table (id uuid, is_message boolean)
language plpgsql set search_path from current as $$
begin
    return query
        select l.id, l.task <> 'holdfast.webhook' from live l
        where (starts_with(l.task, 'channel:') or l.task = 'holdfast.webhook') and l.created_at < p_before
          and l.token is null and l.attempt = 0 and l.last_error is null
          and (l.task = 'holdfast.webhook' or l.payload ->> 'maybe_sent' is distinct from 'true')
        order by l.id limit p_most for update skip locked;
    return query
        select l.id, l.task <> 'holdfast.webhook' from later l
        where (starts_with(l.task, 'channel:') or l.task = 'holdfast.webhook') and l.created_at < p_before
          and l.attempt = 0 and l.last_error is null
          and (l.task = 'holdfast.webhook' or l.payload ->> 'maybe_sent' is distinct from 'true')
        order by l.id limit p_most for update skip locked;
end $$;
