-- Takes or keeps the lead of a chore. Answers with the term: a number that grows each time the lead changes hands, or
-- null when another worker leads. Chores are safe when two leaders overlap; the term tells the older that it is over.
-- Called by: each worker's upkeep loop.
-- Locks: the chore's leader row.
-- Wakes: nobody.
create or replace function take_lead(p_chore text, p_worker text, p_ttl interval) returns bigint
language sql security definer
set search_path from current
as $$
    insert into leader as l (chore, worker, term, expires_at)
    values (p_chore, p_worker, 1, clock() + p_ttl)
    on conflict (chore) do update
        set worker = p_worker, expires_at = clock() + p_ttl,
            term = l.term + (l.worker <> p_worker or l.expires_at <= clock())::integer
        where l.worker = p_worker or l.expires_at <= clock()
    returning term
$$;
