-- Return by how many microseconds tokens are ahead of the clock: an hour for each promotion that the database has been
-- through. A promoted standby may be behind the lost primary in two ways: its clock, and commits that it never
-- received. Its tokens are higher than those that were lost all the same, unless the clocks differ by an hour. A
-- promotion starts a new timeline, which is known at once and needs no commit. After pg_upgrade or a dump timelines
-- start over, so any other number counts as one promotion. note_timeline() stores the sum in the meantime.
create or replace function clock_lead() returns bigint
language plpgsql volatile set search_path from current as $$
declare
    v_clock token_clock; v_timeline integer := current_timeline();
begin
    select * into v_clock from token_clock;
    return coalesce(v_clock.ahead, 0) + case
        when v_timeline >= v_clock.timeline then (v_timeline - v_clock.timeline) * 3600000000
        when v_timeline < v_clock.timeline then 3600000000 else 0 end;
end $$;
