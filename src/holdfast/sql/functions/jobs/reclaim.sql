-- Reclaim the jobs of expired claims: each returns to the queue with its attempt counted, or moves to dead if its
-- attempts are used up. Return one row per claim, with the worker that lost it. The upkeep leader repeats it until it
-- returns no row; concurrent calls are safe.
-- Locks: expired claims in token order, then live rows in id order, skipping locked ones of both; limits without
--   waiting. A claim with a job that another transaction holds stays for the next round, and does not count against
--   p_limit.
-- Wakes: sleepers, through settle.
create or replace function reclaim(p_limit integer default 20) returns table (token bigint, worker text,
    expired_at timestamptz, ids uuid[])
language plpgsql security definer set search_path from current set lock_timeout = '100ms' as $$
declare
    -- Fetched one by one, so that those beyond p_limit are not locked.
    v_claims cursor for select * from claims c where c.expires_at <= clock() order by c.token for update skip locked;
    v_claim claims; v_lost jsonb; v_moved freed[]; v_freed freed[]; v_done integer := 0;
begin
    open v_claims;
    while v_done < p_limit loop
        fetch v_claims into v_claim;
        exit when not found;
        select jsonb_agg(jsonb_build_object('id', i, 'token', v_claim.token, 'outcome', 'lost', 'error',
            jsonb_build_object('type', 'LeaseLost', 'code', 'LEASE_LOST', 'message', format(
                'worker %s stopped renewing its lease; it expired at %s', v_claim.worker, v_claim.expires_at))))
        into v_lost from unnest(v_claim.ids) i;
        token := v_claim.token;
        worker := v_claim.worker;
        expired_at := v_claim.expires_at;
        begin  -- a claim that cannot be settled must not block the rest
            v_moved := array(select settle(v_lost, v_claim.worker));
            perform close_claims(array[v_claim.token]);
            ids := array(select m.id from unnest(v_moved) m);
            v_freed := v_freed || array(select m from unnest(v_moved) m where m.keys is not null);
            if ids <> '{}' or not exists (select 1 from claims c where c.token = v_claim.token) then
                v_done := v_done + 1;
                return next;
            end if;
        exception when others then
            raise warning 'claim % of worker % cannot be reclaimed: %', v_claim.token, v_claim.worker, sqlerrm;
        end;
    end loop;
    close v_claims;
    if v_freed <> '{}' then perform release_limits(v_freed); end if;
end $$;
