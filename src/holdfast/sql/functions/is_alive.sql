-- Whether a worker that was last heard of at a moment counts as alive: it was heard of within 90 seconds (workers say something
-- every `renew` seconds, 20 at first), or a lease of it is still good. Whoever has to know asks here, so that all say the same.
-- Called by: why_workers, operators' tools.
-- Locks: none.
-- Wakes: nobody.
create or replace function is_alive(p_worker text, p_heartbeat_at timestamptz) returns boolean
language sql stable
set search_path from current
as $$
    select p_heartbeat_at > clock() - interval '90 seconds'
        or exists (select 1 from claims c where c.worker = p_worker and c.expires_at > clock())
$$;
