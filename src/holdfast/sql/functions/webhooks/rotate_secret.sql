-- Add a new secret to an endpoint. Deliveries are signed with it and, for p_keep from now, with the previous ones too,
-- so that the receiver has time to switch. Return whether the endpoint exists. p_secret is stored unchanged: the
-- client seals it if it has a key. A repeated call with the same text changes nothing.
-- Locks: the endpoint's row.
create or replace function rotate_secret(p_id uuid, p_secret text, p_keep interval default '1 day',
    p_by text default null, p_reason text default null, p_view_tenant text default null) returns boolean
language plpgsql security definer set search_path from current as $$
declare
    v_until timestamptz := clock() + greatest(coalesce(p_keep, '0'), '0');
begin
    if coalesce(p_secret, '') = '' then
        raise exception 'an endpoint needs a secret' using errcode = 'invalid_parameter_value', constraint = 'endpoint';
    end if;
    update webhook_endpoints e
    set updated_at = clock(),
        secrets = jsonb_build_array(jsonb_build_object('secret', p_secret, 'since', clock(), 'until', null)) || coalesce((
            -- At most ten: receivers reject a header with too many signatures.
            select jsonb_agg(s.each || jsonb_build_object('until', s.until) order by s.place)
            from (select o.each, o.place, least((o.each ->> 'until')::timestamptz, v_until) as until
                  from jsonb_array_elements(e.secrets) with ordinality as o(each, place)) s
            where s.until > clock() and s.place < 10 and s.each ->> 'secret' <> p_secret), '[]')
    where e.id = p_id and e.secrets #>> '{0,secret}' <> p_secret;
    if not found then return exists (select 1 from webhook_endpoints e where e.id = p_id); end if;
    perform record_action('webhooks.rotate', p_id::text, p_by, p_reason, null, jsonb_build_object('old_until', v_until), p_view_tenant);
    return true;
end $$;
