-- Takes back the jobs of expired claims: each returns to the queue with its attempt counted, or goes to dead when its
-- attempts are used up. Answers with one row per claim, naming the worker that lost it.
-- Called by: the upkeep leader, until it answers with no row; safe to call from many places at once.
-- Locks: expired claims in token order, skipping locked ones; then live rows in id order; limits without waiting.
-- Wakes: sleepers, through settle.
create or replace function reclaim(p_limit integer default 20)
returns table (token bigint, worker text, expired_at timestamptz, ids uuid[])
language plpgsql security definer
set search_path from current
as $$
declare
    v_claim claims;
    v_lost  jsonb;
    v_moved freed[];
    v_freed freed[];
begin
    for v_claim in
        select * from claims c where c.expires_at <= clock() order by c.token limit p_limit for update skip locked
    loop
        select jsonb_agg(jsonb_build_object('id', i, 'token', v_claim.token, 'outcome', 'lost', 'error',
            jsonb_build_object('type', 'LeaseLost', 'code', 'LEASE_LOST', 'message', format(
                'worker %s stopped renewing its lease; it expired at %s', v_claim.worker, v_claim.expires_at))))
        into v_lost from unnest(v_claim.ids) i;
        token := v_claim.token;
        worker := v_claim.worker;
        expired_at := v_claim.expires_at;
        begin  -- one claim that cannot be settled must not keep all others from it
            v_moved := array(select settle(v_lost, v_claim.worker));
            delete from claims c where c.token = v_claim.token;
            ids := array(select m.id from unnest(v_moved) m);
            v_freed := v_freed || array(select m from unnest(v_moved) m where m.keys is not null);
            return next;
        exception when others then
            raise warning 'claim % of worker % cannot be reclaimed: %', v_claim.token, v_claim.worker, sqlerrm;
        end;
    end loop;
    if v_freed <> '{}' then
        perform release_limits(v_freed);
    end if;
end $$;
