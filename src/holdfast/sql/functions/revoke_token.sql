-- Lets a token open nothing more. Answers whether it was good for something until now.
-- Called by: operators. Services that have seen the token forget it within `token_cache` seconds.
-- Locks: the token's row.
-- Wakes: nobody.
create or replace function revoke_token(p_id uuid) returns boolean
language plpgsql security definer
set search_path from current
as $$
begin
    update api_tokens set revoked_at = clock()
    where id = p_id and revoked_at is null and (expires_at is null or expires_at > clock());
    return found;
end $$;
