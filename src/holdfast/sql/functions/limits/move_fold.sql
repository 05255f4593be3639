-- Record that all rows of transactions before p_from are folded, except those of transactions that were open. Skip most
-- calls: with a transaction held open elsewhere, each claim walks all versions of this row.
create or replace function move_fold(p_queue text, p_from xid8, p_open xid8[], p_token bigint, p_rows integer,
    p_most integer) returns void
language plpgsql set search_path from current as $$
begin
    if p_rows < p_most then
        insert into folds as f values (p_queue, p_from, p_open, p_token)
        on conflict (queue) do update set from_xid = p_from, open_xids = p_open, token = p_token
        where p_token - f.token > 200000::bigint << 10 or p_rows > 500 or f.token > p_token or f.from_xid > p_from;
    end if;
end $$;
