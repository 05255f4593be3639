-- Append jobs to those a claim has found. p_held: for each job, as text, the limits of its queue and tenant that it is
-- counted under.
create or replace function claim_found(p_claim claim_state, p_places tid[], p_ids uuid[], p_held text[],
    p_deduped integer, p_direct boolean) returns claim_state
language plpgsql immutable as $$
begin
    if array_remove(p_held, null) <> '{}' then  -- it may be shorter than ids: unnest() gives nulls for the rest
        p_claim.held := p_claim.held || array_fill(null::text, array[cardinality(p_claim.ids) - cardinality(p_claim.held)]) || p_held;
    end if;
    p_claim.places := p_claim.places || p_places;
    p_claim.ids := p_claim.ids || p_ids;
    p_claim.deduped := p_claim.deduped + p_deduped;
    if p_direct then p_claim.direct := p_claim.direct || p_ids; end if;
    return p_claim;
end $$;
