-- Extend the leases of the given claims and record the worker's heartbeat. Return the tokens still held; a missing
-- one has expired or was reclaimed, and its jobs belong to another worker. Each worker's renewal thread calls it on its
-- own connection.
-- Locks: the worker's row, then its claims in token order; not against finish, which may hold one for longer than a
--   lease lasts: inside a handler's transaction, if the handler's process is slow to commit.
create or replace function renew(p_worker text, p_tokens bigint[], p_ttl interval) returns setof bigint
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
begin
    update workers set heartbeat_at = clock() where id = p_worker;
    return query update claims c set heartbeat_at = clock(), expires_at = clock() + p_ttl
        from (select token from claims where token = any (p_tokens) order by token for no key update) mine
        where c.token = mine.token and c.worker = p_worker and c.expires_at > clock() returning c.token;
end $$;
