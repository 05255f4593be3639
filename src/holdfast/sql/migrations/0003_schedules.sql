-- Schedules: periodic jobs. Workers register them from code; the database decides when they fire. A small table: a row is
-- written when it fires.

create type missed_policy as enum ('skip', 'once', 'all');

-- next_at is the next slot or, right after registration or a resume, the time from which slots count; null if no slot will
-- ever come. Firing compares and advances it in one step, so each slot is fired once.
create table schedules (
    name          text          primary key check (length(name) between 1 and 200),
    task          task_name     not null,
    cron          text          not null check (length(cron) between 1 and 200),
    zone          text          not null check (length(zone) between 1 and 100),
    missed        missed_policy not null,
    payload       jsonb         not null,
    options       jsonb         not null,
    paused        boolean       not null default false,
    next_at       timestamptz   check (next_at between '1970-01-01' and '9999-12-31'),
    last_at       timestamptz,
    last_job      uuid,
    problem       text,
    registered_at timestamptz   not null
) with (fillfactor = 50);
