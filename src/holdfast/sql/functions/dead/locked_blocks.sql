-- Return those of the given keys of blocks whose row another transaction holds or is inserting. finish skips their
-- jobs, since note_block would have to wait.
-- Locks: the keys' rows for a moment: each is written in a subtransaction that is rolled back.
create or replace function locked_blocks(p_keys text[]) returns text[]
language plpgsql set search_path from current set jit = off set enable_seqscan = off set lock_timeout = '1ms' as $$
declare
    v_key text; v_locked text[] := '{}';
begin
    foreach v_key in array p_keys loop
        begin
            insert into blocks as b (key, count, first_seen, last_seen, last_job)
            values (v_key, 0, clock(), clock(), gen_random_uuid()) on conflict (key) do update set count = b.count;
            raise exception using errcode = 'HF001', message = 'not locked';
        exception
            when sqlstate 'HF001' then null;
            when lock_not_available then v_locked := v_locked || v_key;
        end;
    end loop;
    return v_locked;
end $$;
