-- Return the tenant, scopes and remaining seconds of the token with this digest; no row if there is none, or it is
-- revoked or expired. Record its use, at most once a minute.
-- Locks: the token's row, if it writes; it does not wait for it.
create or replace function use_token(p_digest bytea, out id uuid, out name text, out tenant text, out scopes text[],
    out seconds_left double precision, out priority smallint, out rate double precision) returns setof record
language plpgsql security definer set search_path from current as $$
#variable_conflict use_column
begin
    return query
        select t.id, t.name, t.tenant::text, t.scopes, extract(epoch from t.expires_at - clock())::float8, t.priority, t.rate
        from api_tokens t
        where t.digest = p_digest and t.revoked_at is null and (t.expires_at is null or t.expires_at > clock());
    if found then
        update api_tokens set last_used_at = clock() where ctid = any (array(
            select t.ctid from api_tokens t
            where t.digest = p_digest and (t.last_used_at is null or t.last_used_at < clock() - interval '1 minute')
            for update skip locked));
    end if;
end $$;
