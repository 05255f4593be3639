-- Finds up to p_want plain jobs of a queue and priority in the order of run_at and id, after the caller's cursor. Jobs of tasks that have limits are
-- moved to lanes of their own, once; a limit of the whole queue is counted, and where it has no room lane 0 is closed as any other.
-- Called by: claim, claim_ring, under whose settings it runs.
-- Locks: live rows in order, skipping locked ones.
-- Wakes: nobody.
create or replace function claim_plain(p_queue text, p_priority integer, p_want integer, p_terms claim_terms) returns found_jobs
language plpgsql
as $$
declare
    v_at    timestamptz := coalesce(to_timestamp((p_terms.cursors #>> array[p_queue || '/' || p_priority, '0'])::double precision), '-infinity');
    v_id    uuid := coalesce((p_terms.cursors #>> array[p_queue || '/' || p_priority, '1'])::uuid, '00000000-0000-0000-0000-000000000000');
    v_place tid;
    v_shut  text;
    v_turn  lane_turn[];
    v_after record;
    v_wrong tid[];
    v_found found_jobs := ('{}', '{}', 0, '{}', 0, false, false);
begin
    if p_terms.queue_key is not null then
        select l.ctid, l.closed_by into v_place, v_shut from lanes l where l.queue = p_queue and l.priority = p_priority and l.lane = 0;
        if v_shut is not null or not has_plain(p_queue, p_priority, p_terms) then
            return v_found;
        elsif v_place is null then
            insert into lanes (queue, priority, lane, flow, open) values (p_queue, p_priority, 0, 0, false) returning ctid into v_place;
        end if;
        v_turn := ask_limits(array[(1, 1, v_place, 0, null, null, false, null, null, p_want, p_want, null, null, false, null, null, 0)::lane_turn], null, p_terms);
        p_want := case when v_turn[1].direct then greatest(least(v_turn[1].take, p_terms.free), 0) else v_turn[1].take end;
        if v_turn[1].shut_by is not null then
            v_after := write_lanes(p_queue, p_priority, v_turn[1].direct, v_turn, p_terms);
            v_found.closed := v_after.closed;
            return v_found;
        end if;
    end if;
    for v_round in 1..10 loop
        select coalesce(array_agg(j.place), '{}'), coalesce(array_agg(j.id), '{}'), count(j.dedupe_key)
        into v_found.places, v_found.ids, v_found.deduped from (
            select j.ctid as place, j.id, j.dedupe_key from live j
            where j.queue = p_queue and j.priority = p_priority and j.lane = 0 and (j.run_at, j.id) > (v_at, v_id)
              and j.token is null and j.id <> all (p_terms.found) and (j.deadline is null or j.deadline > clock())
            order by j.queue, j.priority, j.lane, j.run_at, j.id limit p_want for update skip locked) j;
        exit when p_terms.tasks is null;
        v_wrong := array(select j.ctid from live j where j.ctid = any (v_found.places) and j.task = any (p_terms.tasks));
        exit when v_wrong = '{}';
        perform move_jobs(v_wrong, p_terms.tasks);
        v_found := ('{}', '{}', 0, '{}', 0, false, true);  -- the next claim finds them in their lane
    end loop;
    if p_terms.queue_key is not null and v_found.ids <> '{}' then
        v_turn[1].got := cardinality(v_found.ids);
        v_found.held := start_under_limits(v_turn, v_found.ids, v_turn[1].direct, p_terms);
    end if;
    return v_found;
end $$;
