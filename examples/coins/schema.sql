-- The application's own tables, and the names of the design for what Holdfast keeps. Each run recreates them.
drop schema if exists coins cascade;
create schema coins;
set search_path to coins;

create table coin_intakes (
    id           uuid primary key default gen_random_uuid(),
    year         integer,
    mintmark     text,
    denomination text,
    series       text,
    title        text not null
);

create table marketplaces (
    id   text primary key,  -- short and readable: it is part of the limit's key, source:ID
    name text not null,
    url  text not null
);

create table price_points (
    id             bigint generated always as identity primary key,
    intake_id      uuid    not null references coin_intakes on delete cascade,
    source_id      text    not null references marketplaces on delete cascade,
    dedupe_key     text    not null,
    external_id    text,
    url            text    not null,
    title          text    not null,
    price_cents    bigint  not null,
    price_type     text    not null check (price_type in ('sold', 'ask', 'bid')),
    seen_on        date    not null,
    match_strength integer not null,  -- 0 to 100: how sure it is that this is the coin
    unique (intake_id, source_id, dedupe_key)
);

create table valuations (
    intake_id   uuid        not null references coin_intakes on delete cascade,
    value_cents bigint      not null,
    low_cents   bigint      not null,
    high_cents  bigint      not null,
    points      integer     not null,
    updated_at  timestamptz not null default now(),
    unique (intake_id)
);

-- A source is a marketplace and the limit that its jobs share. What is said of the limit is kept by Holdfast alone, so that
-- `update sources set rate_limit_per_minute = 60` and `holdfast limits set source:ID --rate 60` are the same thing.
create view sources as
select m.id, m.name, m.url, not coalesce(u.paused, false) as enabled, coalesce(u.failure_streak, 0) as failure_streak,
       u.last_success_at, u.last_failure_at,
       greatest(case when u.paused then u.paused_until end, u.open_until) as paused_until,  -- the later of pause and breaker
       u.rate / u.per * 60 as rate_limit_per_minute
from marketplaces m left join holdfast.limit_use u on u.key = 'source:' || m.id;

create function change_source() returns trigger
language plpgsql
set search_path from current
as $$
declare
    v_key text := 'source:' || case tg_op when 'INSERT' then new.id else old.id end;
begin
    if tg_op = 'INSERT' then
        insert into marketplaces (id, name, url) values (new.id, new.name, new.url);
    else
        update marketplaces m set name = new.name, url = new.url where m.id = old.id;
    end if;
    if tg_op = 'INSERT' or new.rate_limit_per_minute is distinct from old.rate_limit_per_minute then
        perform holdfast.set_limit(v_key, jsonb_build_object('rate', new.rate_limit_per_minute, 'per', 60, 'burst', 5));
    end if;
    if new.enabled is false and (tg_op = 'INSERT' or old.enabled) then
        perform holdfast.pause(v_key, p_reason => 'disabled in coins.sources');
    elsif new.enabled is not false and (tg_op = 'INSERT' or not old.enabled) then
        perform holdfast.resume(v_key);
    end if;
    return new;
end $$;

create trigger change_source instead of insert or update on sources for each row execute function change_source();

-- Holdfast's jobs in the words of the design. A job of an intake that was deleted is not shown, as under a foreign key.
-- A stuck job that was taken back is pending, not retryable: its error is the lost lease.
create view scrape_jobs as
select j.id, (j.payload ->> 'intake_id')::uuid as intake_id, j.payload ->> 'source_id' as source_id,
       (j.payload -> 'query_params')::jsonb as query_params,
       case when j.status = 'queued' or j.status = 'retrying' and j.last_error ->> 'code' = 'LEASE_LOST' then 'pending'
            when j.status = 'retrying' then 'retryable'
            when j.status in ('running', 'succeeded') then j.status::text
            else 'failed' end as status,
       j.attempts, j.locked_by, j.locked_at, j.heartbeat_at,
       case when j.status = 'retrying' then j.run_at end as next_retry_at,
       j.last_error ->> 'message' as error_message, j.created_at, j.finished_at as completed_at,
       j.token as lock_token, j.result::jsonb as result
from holdfast.jobs j
where j.task = 'coins.scrape' and j.payload ->> 'intake_id' in (select i.id::text from coin_intakes i);

create function add_scrape_job() returns trigger
language plpgsql
set search_path from current
as $$
begin
    if new.status <> 'pending' then
        raise exception 'a new scrape job is pending, not %', new.status using errcode = 'invalid_parameter_value';
    elsif not exists (select from coin_intakes i where i.id = new.intake_id)
       or not exists (select from marketplaces m where m.id = new.source_id) then
        raise exception 'there is no intake %, or no source %', new.intake_id, new.source_id
            using errcode = 'foreign_key_violation';
    end if;
    select e.id into new.id from holdfast.enqueue(
        'coins.scrape',
        jsonb_build_object('intake_id', new.intake_id, 'source_id', new.source_id,
                           'query_params', coalesce(new.query_params, '{}')),
        p_queue => 'scrape_jobs',
        p_max_attempts => 12,  -- as in app.py: until a worker has started, the database has not heard of it
        p_keys => array['source:' || new.source_id]) e;
    return new;
end $$;

create trigger add_scrape_job instead of insert on scrape_jobs for each row execute function add_scrape_job();

-- Claim one job, from psql or any language. It also takes back stuck jobs and those whose retry is due,
-- so it needs no worker beside it. End the job with holdfast.finish or holdfast.fail and its lock_token.
create function claim_next_pending_job(worker_id text, lock_timeout interval default '300 seconds')
returns setof scrape_jobs
language plpgsql
set search_path from current
as $$
declare
    v_id uuid;
begin
    perform holdfast.reclaim();
    perform holdfast.promote();
    select c.id into v_id from holdfast.claim(worker_id, '{scrape_jobs}', 1, lock_timeout) c;
    return query select * from scrape_jobs j where j.id = v_id;
end $$;

-- What each coin is worth, for people.
create view valued_coins as
select i.title, v.points as prices, to_char(v.value_cents / 100.0, 'FM$999,990') as value,
       to_char(v.low_cents / 100.0, 'FM$999,990') || ' to ' || to_char(v.high_cents / 100.0, 'FM$999,990') as sold_for,
       (select string_agg(distinct p.source_id, ', ') from price_points p where p.intake_id = i.id) as sources
from coin_intakes i join valuations v on v.intake_id = i.id
order by v.value_cents desc;
