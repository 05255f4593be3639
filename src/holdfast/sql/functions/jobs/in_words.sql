-- Format a duration for people: 20 ms, 3.2 s, 12 s, 3 min, 2.5 h. The command line uses the same format.
create or replace function in_words(p_time interval) returns text language sql immutable strict parallel safe as $$
    select case when s >= 172800 then round(s / 86400, 1) || ' d' when s >= 7200 then round(s / 3600, 1) || ' h'
                when s >= 120 then round(s / 60) || ' min' when s >= 10 then round(s) || ' s'
                when s >= 0.1 then round(s, 1) || ' s' else round(s * 1000) || ' ms' end
    from (select greatest(extract(epoch from p_time), 0)::numeric as s) g
$$;
