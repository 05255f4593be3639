-- Return whether a caller may see a row of a tenant, or of none: either all rows, or those of one tenant. The service
-- calls it for every row it shows or changes. It has no SET clause, so that it can be inlined into the calling query.
create or replace function may_see(p_everyone boolean, p_who text, p_tenant text) returns boolean
language sql immutable parallel safe as $$
    select p_everyone is true or (p_who = p_tenant) is true
$$;
