-- The lanes that a claim shall visit which does not know them: those that it meets on its way (p_hint as for claim_lanes), but for those to
-- skip, and those that `shut` tells of (see shut_lanes). `reached` is the lane up to which it has met all, null when there are no more; `few` that
-- it has met a few of each tenant instead.
-- Called by: claim_lanes.
-- Locks: none.
-- Wakes: nobody.
create or replace function walk_lanes(
    p_queue text, p_priority integer, p_hint jsonb, p_room integer,
    out lanes bigint[], out shut jsonb, out reached bigint, out few boolean)
language plpgsql
set search_path from current set enable_hashjoin = on
as $$
declare
    v_from  bigint := p_hint ->> 'from';
    v_start bigint := p_hint ->> 'round';
    v_skip  bigint[] := coalesce((p_hint ->> 'skip')::bigint[], '{}');
    -- Who remembers what it is told may be told of many lanes at once; who does not wants as many as there is room for.
    v_most  integer := greatest(p_room, case when p_hint ?| '{round,to}' then 100 else 500 end) + cardinality(v_skip);
    v_each  integer := greatest(v_most / 20, 1);
    v_heads candidate[] := walk(p_queue, p_priority, v_from, (p_hint ->> 'to')::bigint, v_most);
    v_few   candidate[];
begin
    if v_start is not null and cardinality(v_heads) < v_most then
        v_heads := v_heads || walk(p_queue, p_priority, -1, v_start, v_most - cardinality(v_heads));
    end if;
    reached := case when cardinality(v_heads) >= v_most then v_heads[cardinality(v_heads)].lane end;
    few := reached is not null and v_start is not null
        and exists (select 1 from unnest(v_heads) h group by h.lane >> 32 having count(*) > v_each);
    if few then
        -- Not all of them lanes of a tenant or two: first a few of each.
        v_few := walk(p_queue, p_priority, v_from, null, v_most, v_each);
        if cardinality(v_few) < v_most then
            v_few := v_few || walk(p_queue, p_priority, -1, v_start, v_most - cardinality(v_few), v_each);
        end if;
        v_heads := v_few || array(
            select h from unnest(v_heads) h where h.lane not in (select f.lane from unnest(v_few) f)
            limit v_most - cardinality(v_few));
    elsif not p_hint ?| '{round,to}' and reached >> 32 <> v_from >> 32
        and cardinality(walk(p_queue, p_priority, reached, reached | 4294967295, v_each + 1)) > v_each then
        -- A tenant of many lanes begins here: nobody behind it waits until all of them have been walked.
        v_heads := v_heads || walk(p_queue, p_priority, reached, null, v_most - cardinality(v_skip), v_each);
    end if;
    if v_skip <> '{}' then
        v_heads := array(select h from unnest(v_heads) h where h.lane not in (select unnest(v_skip)));
    end if;
    shut := shut_lanes(p_queue, p_priority, array(select h from unnest(v_heads) h where h.lane & 4294967295 <> 0));
    lanes := array(
        select h.lane from unnest(v_heads) h
        where h.lane not in (select (c ->> 0)::bigint from jsonb_array_elements(shut) c));
end $$;
