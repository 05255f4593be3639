-- Whether a caller may see a row of a tenant, or of nobody: everyone's rows, or those of one tenant. The service asks here for
-- every row it shows or changes. A caller that is neither sees nothing.
-- Called by: the service's queries; seen_jobs. No `set`, so that it becomes part of the query that asks.
-- Locks: none.
-- Wakes: nobody.
create or replace function may_see(p_everyone boolean, p_who text, p_tenant text) returns boolean
language sql immutable parallel safe
as $$
    select p_everyone is true or (p_who = p_tenant) is true
$$;
