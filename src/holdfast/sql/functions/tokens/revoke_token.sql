-- Revoke a token. Return whether it was valid until now. Services that have cached the token drop it within
-- `token_cache` seconds.
-- Locks: the token's row.
create or replace function revoke_token(p_id uuid, p_by text default null, p_reason text default null) returns boolean
language plpgsql security definer set search_path from current as $$
begin
    update api_tokens set revoked_at = clock()
    where id = p_id and revoked_at is null and (expires_at is null or expires_at > clock());
    if not found then return false; end if;
    perform record_action('tokens.revoke', p_id::text, p_by, p_reason);
    return true;
end $$;
