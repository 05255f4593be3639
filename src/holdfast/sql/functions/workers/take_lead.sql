-- Take or keep the lead of a chore. Return the term, a number that grows each time the leader changes, or null if
-- another worker leads. Chores are safe when two leaders overlap; the term shows the older one that it no longer leads.
-- Locks: the chore's leader row, without waiting for it. If another transaction holds it for longer than a lead lasts,
--   the caller leads without it: a transaction that was left open must not stop upkeep.
create or replace function take_lead(p_chore text, p_worker text, p_ttl interval) returns bigint
language plpgsql security definer set search_path from current set lock_timeout = '100ms' as $$
declare
    v_lead leader; v_term bigint;
begin
    select * into v_lead from leader l where l.chore = p_chore;
    if found and v_lead.worker <> p_worker and v_lead.expires_at > clock() then
        return null;
    elsif not found then
        insert into leader (chore, worker, term, expires_at) values (p_chore, p_worker, 1, clock() + p_ttl)
        on conflict do nothing;
        return case when found then 1 end;
    end if;
    update leader l
    set worker = p_worker, expires_at = clock() + p_ttl, term = l.term + (l.worker <> p_worker or l.expires_at <= clock())::integer
    where l.ctid = (
        select f.ctid from leader f
        where f.chore = p_chore and (f.worker = p_worker or f.expires_at <= clock()) for update skip locked)
    returning l.term into v_term;
    return coalesce(v_term, case when v_lead.expires_at <= clock() - p_ttl then v_lead.term + 1 end);
exception when lock_not_available then  -- the transaction that inserts the first leader is still open
    return 0;
end $$;
