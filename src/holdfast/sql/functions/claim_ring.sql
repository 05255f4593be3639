-- Finds jobs as claim_lanes does, for a caller who may not know where: without a hint it begins anywhere and goes round once, or
-- until there is enough.
-- Called by: claim.
-- Locks: as claim_lanes.
-- Wakes: nobody.
create or replace function claim_ring(
    p_queue text, p_priority integer, p_hint jsonb, p_room integer, p_free integer,
    p_per_tenant integer, p_served jsonb,
    out taken candidate[], out limited integer, out contention integer, out info jsonb)
language plpgsql
set search_path from current
as $$
declare
    -- Jobs without a tenant are in the lowest lanes, however many there are of them.
    v_start bigint := (random() * case when random() < 0.5 then 2 ^ 32 else 2 ^ 63 - 1024 end)::bigint;
    v_from  bigint := v_start;
    v_round boolean := false;
    v_found record;
    v_shut  jsonb := '[]';
begin
    if jsonb_typeof(p_hint) = 'array' then  -- lane 0 alone
        p_hint := jsonb_build_object('lanes', '{0}', 'at', coalesce('{' || (p_hint ->> 0) || '}', '{-infinity}'),
                                     'ids', '{' || coalesce(p_hint ->> 1, '00000000-0000-0000-0000-000000000000') || '}');
    end if;
    if p_hint is not null then
        select c.taken, c.limited, c.contention, c.info into taken, limited, contention, info
        from claim_lanes(p_queue, p_priority, p_hint, p_room, p_free, p_per_tenant, p_served) c;
        return;
    end if;
    taken := '{}';
    limited := 0;
    contention := 0;
    for v_step in 1..100 loop
        v_found := claim_lanes(
            p_queue, p_priority, jsonb_build_object('from', v_from, case when v_round then 'to' else 'round' end, v_start),
            p_room - cardinality(taken), p_free - limited, p_per_tenant, p_served);
        taken := taken || v_found.taken;
        limited := limited + v_found.limited;
        contention := contention + v_found.contention;
        if p_per_tenant is not null then
            p_served := add_served(p_served, v_found.taken);
        end if;
        v_shut := v_shut || coalesce(v_found.info -> 'closed', '[]');
        -- What may not be claimed ahead waits for a slot, and whoever holds limits has them for a moment: to go on would lock, and
        -- give back, all that there is.
        exit when cardinality(taken) >= p_room or taken <> '{}' and (limited >= p_free or contention > 0);
        v_from := v_found.info ->> 'end';
        exit when v_from is null;
        v_round := v_round or v_from <= v_start;
    end loop;
    info := v_found.info || jsonb_build_object('closed', v_shut, 'contention', contention);
end $$;
