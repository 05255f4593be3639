-- Cancels jobs that wait. Answers for each id: canceled, running (cannot be canceled here), finished (already at a
-- final status) or unknown.
-- Called by: clients and operators.
-- Locks: as cancel_waiting.
-- Wakes: nobody.
create or replace function cancel(p_ids uuid[]) returns table (id uuid, outcome text)
language plpgsql security definer
set search_path from current set enable_seqscan = off set enable_bitmapscan = off
as $$
#variable_conflict use_column
declare
    v_rest     uuid[] := p_ids;
    v_again    uuid[];
    v_canceled uuid[];
begin
    -- A job may move between later and live while we look. One statement sees each job in exactly one place, so those
    -- it still sees waiting are tried again.
    loop
        v_canceled := array(select cancel_waiting(v_rest));
        v_again := '{}';
        for id, outcome in
            select r, case when r = any (v_canceled) then 'canceled'
                           when t.id is not null or (l.id is not null and l.token is null) then 'waiting'
                           when l.id is not null then 'running'
                           when k.id is not null then 'finished'
                           else 'unknown' end
            from unnest(v_rest) r
                left join lateral (select l.id, l.token from live l where l.id = r offset 0) l on true
                left join lateral (select t.id from later t where t.id = r offset 0) t on true
                left join lateral (
                    select d.id from dead d where d.id = r
                    union all select h.id from history h where h.id = r limit 1) k on true
        loop
            if outcome = 'waiting' then
                v_again := v_again || id;
            else
                return next;
            end if;
        end loop;
        exit when v_again = '{}';
        v_rest := v_again;
    end loop;
end $$;
