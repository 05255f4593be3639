-- Moves jobs to the lane of their limits: those of a task that has a limit of its own, which they carry from now on, and those that are in a lane with
-- jobs of other limits. The trigger of live tells the ring.
-- Called by: claim_lap, claim_plain, which have locked them.
-- Locks: none of its own.
-- Wakes: nobody.
create or replace function move_jobs(p_places tid[], p_tasks text[]) returns void
language plpgsql
as $$
begin
    update live j set keys = j.keys::text[] || k.task,
        -- a job of an order stays in its lane, whatever its other limits
        lane = case when lane_of(j.tenant, j.keys::text[] || k.task) <> j.lane or k.task is not null then lane_of(j.tenant, j.keys::text[] || k.task)
                    else greatest((j.lane + 1) & 9223372036854775807, 1) end
    from unnest(p_places) as p(place) cross join lateral (
        select case when j.task = any (p_tasks) and not coalesce('task:' || j.task = any (j.keys), false) then array['task:' || j.task] end as task
        from live j where j.ctid = p.place) k
    where j.ctid = p.place;
end $$;
