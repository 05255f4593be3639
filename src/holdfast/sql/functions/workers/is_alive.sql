-- Return whether a worker counts as alive: its last heartbeat is at most 90 seconds old (the default interval,
-- `renew`, is 20), or one of its leases is still valid. Every status display uses this function, so that they agree.
create or replace function is_alive(p_worker text, p_heartbeat_at timestamptz) returns boolean
language sql stable set search_path from current as $$
    select p_heartbeat_at > clock() - interval '90 seconds'
        or exists (select 1 from claims c where c.worker = p_worker and c.expires_at > clock())
$$;
