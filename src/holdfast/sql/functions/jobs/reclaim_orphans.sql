-- Reclaim running jobs without a claim, as reclaim does for expired claims. They exist only if a client closed a
-- claim too early, or a row of claims was deleted by hand. Return their ids. Read p_pages consecutive pages, chosen
-- at random: token must not be indexed, so no index finds such jobs, and live is never scanned as a whole. With 50
-- pages every 2 s, a live table of 100 MB takes about ten minutes.
-- Locks: live rows, skipping locked ones, as settle; limits without waiting. Wakes: sleepers, through settle.
create or replace function reclaim_orphans(p_pages integer default 50) returns setof uuid
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off
set lock_timeout = '100ms' as $$
declare
    v_pages bigint := pg_relation_size('live') / current_setting('block_size')::integer;
    v_from bigint := floor(random() * ceil(v_pages / p_pages::double precision)) * p_pages; v_ids uuid[];
    v_tokens bigint[]; v_lost jsonb; v_moved freed[];
begin
    select array_agg(l.id), array_agg(l.token) into v_ids, v_tokens from live l
    where l.ctid >= format('(%s,0)', v_from)::tid and l.ctid < format('(%s,0)', v_from + p_pages)::tid and l.token is not null;
    -- In a statement of its own: a job that ends meanwhile has no claim either, and settle then does not find it.
    v_lost := (
        select jsonb_agg(jsonb_build_object('id', g.id, 'token', g.token, 'outcome', 'lost', 'error', jsonb_build_object(
            'type', 'LeaseLost', 'code', 'LEASE_LOST', 'message', 'its claim was closed while it was running')))
        from unnest(v_ids, v_tokens) as g(id, token) where not exists (select 1 from claims c where c.token = g.token));
    if v_lost is null then return; end if;
    begin
        v_moved := array(select settle(v_lost, null));
    exception when others then
        raise warning '% jobs without a claim cannot be reclaimed: %', jsonb_array_length(v_lost), sqlerrm;
        return;
    end;
    if exists (select 1 from unnest(v_moved) m where m.keys is not null) then
        perform release_limits(array(select m from unnest(v_moved) m where m.keys is not null));
    end if;
    return query select m.id from unnest(v_moved) m;
end $$;
