-- Move jobs to the lane of their limits: jobs of a task that has a limit, which they carry from now on, and jobs in a
-- lane of other limits. The trigger on live announces them. The caller has locked the rows.
create or replace function move_jobs(p_places tid[], p_tasks text[]) returns void language plpgsql as $$
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
