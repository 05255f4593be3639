-- Remembers that a fold has read all rows of transactions before p_from but for those open then. Not every time: under a transaction that is held open,
-- versions of this row are walked by each claim, and so are the rows that were folded since.
-- Called by: fold_arrivals, fold_releases, which hold the ring's lock.
-- Locks: none of its own.
-- Wakes: nobody.
create or replace function move_fold(p_queue text, p_from xid8, p_open xid8[], p_token bigint, p_rows integer, p_most integer) returns void
language plpgsql
set search_path from current
as $$
begin
    if p_rows < p_most then
        insert into folds as f values (p_queue, p_from, p_open, p_token)
        on conflict (queue) do update set from_xid = p_from, open_xids = p_open, token = p_token
        where p_token - f.token > 200000::bigint << 10 or p_rows > 500 or f.token > p_token or f.from_xid > p_from;
    end if;
end $$;
