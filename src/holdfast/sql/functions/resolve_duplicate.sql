-- What becomes of an enqueue whose dedupe key another job holds: existing, replaced, or an error.
-- Called by: enqueue.
-- Locks: the holder's row, if it waits and nobody else has it locked; it never waits for it (skip locked), because
--   finish takes the row first and the key second.
-- Wakes: nobody.
create or replace function resolve_duplicate(p_key text, p_holder uuid, p_payload jsonb, p_on_conflict text)
returns text
language plpgsql
set search_path from current set jit = off set enable_seqscan = off
as $$
begin
    if p_on_conflict = 'raise' then
        raise exception 'job % already holds dedupe key %', p_holder, left(p_key, 200)
            using errcode = 'unique_violation', constraint = 'dedupe_key';
    elsif p_on_conflict = 'replace' then
        update live set payload = p_payload::json
        where id = (select id from live where id = p_holder and token is null for update skip locked);
        if not found then
            update later set payload = p_payload::json
            where id = (select id from later where id = p_holder for update skip locked);
        end if;
        return case when found then 'replaced' else 'existing' end;
    elsif p_on_conflict = 'existing' then
        return 'existing';
    end if;
    raise exception 'on_conflict is existing, replace or raise, got %', p_on_conflict
        using errcode = 'invalid_parameter_value';
end $$;
