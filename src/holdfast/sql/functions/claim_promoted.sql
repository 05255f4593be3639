-- Finds those of the jobs that have just come due which may start now.
-- Called by: claim, when it has room left.
-- Locks: live rows, then limits rows, skipping locked ones.
-- Wakes: nobody.
create or replace function claim_promoted(
    p_ids uuid[], p_queues text[], p_room integer, p_free integer, p_per_tenant integer, p_served jsonb,
    out taken candidate[], out limited integer)
language plpgsql
set search_path from current
as $$
declare
    v_found candidate[];
    v_queue text;
    v_ok    record;
begin
    taken := '{}';
    limited := 0;
    p_ids := array(
        select l.id from live l
        where l.id = any (p_ids) and l.queue = any (p_queues) and l.token is null
          and (l.deadline is null or l.deadline > clock())
        order by l.priority, l.run_at, l.id limit p_room for update skip locked);
    foreach v_queue in array p_queues loop
        v_found := array(
            select (l.ctid, l.id, l.lane, l.run_at, l.tenant, l.task, l.keys, l.dedupe_key, l.held)::candidate from live l
            where l.id = any (p_ids) and l.queue = v_queue order by l.priority, l.run_at, l.id);
        if p_per_tenant is not null then
            v_found := within_cap(v_found, p_per_tenant, p_served, taken);
        end if;
        if v_found <> '{}' then
            v_ok := admit(v_found, v_queue, p_free - limited);
            taken := taken || coalesce(v_ok.taken, '{}');
            limited := limited + v_ok.limited;
        end if;
    end loop;
end $$;
