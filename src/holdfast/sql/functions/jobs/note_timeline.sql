-- Store how far tokens are ahead of the clock after a promotion (clock_lead). The result of clock_lead stays the same,
-- so it does not matter when. Upkeep calls it.
-- Locks: the row of token_clock, without waiting for it.
create or replace function note_timeline() returns void
language plpgsql security definer set search_path from current as $$
begin
    if exists (select 1 from token_clock c where c.timeline <> current_timeline()) then
        update token_clock set ahead = clock_lead(), timeline = current_timeline(), changed_at = clock()
        where ctid = (select c.ctid from token_clock c for update skip locked);
    end if;
end $$;
