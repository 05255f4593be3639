-- Take a dedupe key for job p_id, or return the job that holds it. taken: this call inserted the key; a repeated
-- enqueue finds its own id as the holder. p_until, for messages: kept until then, and for as long as the message
-- exists.
-- Locks: inserts the key's row; waits for another transaction that is inserting the same key. A key already held is
--   read, never locked: a client's long transaction must not block the worker that finishes the holder.
create or replace function take_dedupe_key(p_key text, p_id uuid, p_scope dedupe_scope, p_keep interval,
    p_until timestamptz default null, out holder uuid, out taken boolean)
language plpgsql set search_path from current set jit = off set enable_seqscan = off set enable_bitmapscan = off as $$
declare
    v_expired boolean;
    v_sees_now boolean := current_setting('transaction_isolation') = 'read committed';  -- else the holder may have ended
    v_keep interval := case when p_keep > interval '100 years' then interval '100 years' else p_keep end;
begin
    loop
        -- Look first, from the end of the key's index entries, where the newest row is. An insert would visit all dead entries of
        -- earlier uses, which an open transaction may keep. ("key = p_key" would let the planner drop the order.)
        select d.id, coalesce(d.expires_at <= clock(), false) into holder, v_expired
        from dedupe d where d.key between p_key and p_key order by d.key desc limit 1;
        if v_expired and (p_until is null or times_accepted(holder) = 0) then
            delete from dedupe where key = p_key and expires_at <= clock();
        elsif holder is not null and (v_sees_now or not taken) then
            taken := false;
            return;
        end if;
        insert into dedupe (key, id, scope, keep, expires_at) values (p_key, p_id, p_scope, v_keep, p_until)
        on conflict do nothing;
        taken := found;
        if taken then
            holder := p_id;
            return;
        end if;
    end loop;
end $$;
