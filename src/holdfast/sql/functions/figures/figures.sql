-- Return the newest snapshot with its time, `at`, and `age` in seconds. Take one first if there is none from the
-- last 5 seconds, because no worker leads.
create or replace function figures() returns jsonb
language plpgsql security definer set search_path from current set jit = off set enable_seqscan = off as $$
begin
    if not exists (select 1 from snapshots s where s.at > clock() - interval '5 seconds') then
        perform take_snapshot();
    end if;
    return (select s.figures || jsonb_build_object('at', s.at, 'age', round(extract(epoch from clock() - s.at), 3))
            from snapshots s order by s.at desc limit 1);
end $$;
