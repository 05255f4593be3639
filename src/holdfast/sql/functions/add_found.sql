-- Two parts of a claim as one.
-- Called by: claim, claim_ring.
-- Locks: none.
-- Wakes: nobody.
create or replace function add_found(p_all found_jobs, p_part found_jobs) returns found_jobs
language plpgsql immutable
as $$
begin
    if p_all.held <> '{}' or p_part.held <> '{}' then
        p_all.held := p_all.held || array_fill(null::text, array[cardinality(p_all.ids) - cardinality(p_all.held)]) || p_part.held;
    end if;
    p_all.places := p_all.places || p_part.places;
    p_all.ids := p_all.ids || p_part.ids;
    p_all.deduped := p_all.deduped + p_part.deduped;
    p_all.closed := p_all.closed + p_part.closed;
    p_all.moved := p_all.moved or p_part.moved;
    p_all.more := p_all.more or p_part.more;
    return p_all;
end $$;
