-- Find plain jobs of a queue and priority in the order of run_at and id, after the caller's cursor. Move jobs of tasks
-- that have limits to their lanes.
-- Locks: live rows in order with SKIP LOCKED.
create or replace function claim_plain(p_claim claim_state, p_queue text, p_priority integer) returns claim_state
language plpgsql as $$
declare
    v_at timestamptz := coalesce(to_timestamp((p_claim.cursors #>> array[p_queue || '/' || p_priority, '0'])::double precision), '-infinity');
    v_id uuid := coalesce((p_claim.cursors #>> array[p_queue || '/' || p_priority, '1'])::uuid, '00000000-0000-0000-0000-000000000000');
    v_places tid[]; v_ids uuid[]; v_deduped integer; v_strays tid[];
begin
    for v_round in 1..10 loop
        select array_agg(j.place) filter (where j.fits), array_agg(j.id) filter (where j.fits), count(j.dedupe_key) filter (where j.fits),
               array_agg(j.place) filter (where not j.fits)
        into v_places, v_ids, v_deduped, v_strays from (
            select j.ctid as place, j.id, j.dedupe_key, p_claim.tasks is null or j.task <> all (p_claim.tasks) as fits from live j
            where j.queue = p_queue and j.priority = p_priority and j.lane = 0 and (j.run_at, j.id) > (v_at, v_id)
              and j.token is null and (j.deadline is null or j.deadline > clock())
            order by j.queue, j.priority, j.lane, j.run_at, j.id limit p_claim.most - cardinality(p_claim.ids) for update skip locked) j;
        exit when v_strays is null;
        perform move_jobs(v_strays, p_claim.tasks);
        p_claim.more := true;  -- the next claim finds them in their lane
        exit when v_ids is not null;
    end loop;
    return claim_found(p_claim, v_places, v_ids, null, v_deduped, false);
end $$;
