-- Return whether a plain job waits after the caller's cursor that this claim has not found yet.
create or replace function has_plain(p_claim claim_state, p_queue text, p_priority integer) returns boolean
language plpgsql stable as $$
declare
    v_at timestamptz := coalesce(to_timestamp((p_claim.cursors #>> array[p_queue || '/' || p_priority, '0'])::double precision), '-infinity');
    v_id uuid := coalesce((p_claim.cursors #>> array[p_queue || '/' || p_priority, '1'])::uuid, '00000000-0000-0000-0000-000000000000');
begin
    return (select true from live j
            where j.queue = p_queue and j.priority = p_priority and j.lane = 0 and (j.run_at, j.id) > (v_at, v_id) and j.token is null
              and j.id <> all (p_claim.ids) and (j.deadline is null or j.deadline > clock())
            order by j.queue, j.priority, j.lane, j.run_at, j.id limit 1) is true;
end $$;
