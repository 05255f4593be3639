-- Outbox and webhooks. Messages and deliveries are jobs, so only a few tables are added.

-- Limits that a waiting job keeps: those of an order ("order:..."), so that no later job of that order overtakes it.
alter table later add held text[];

-- The waiting job that keeps an order.
create table kept_orders (
    key text collate "C" primary key,
    id  uuid not null
);

-- Where a tenant's events are sent. Secrets are sealed if a key is configured; only the owner can read them.
create table webhook_endpoints (
    id              uuid        primary key,
    tenant          tenant_name,
    url             text        not null check (length(url) between 1 and 2000),
    events          text[],     -- types, or "prefix.*"; null: all
    prefix          text        not null default 'Holdfast' check (prefix ~ '^[A-Za-z0-9-]{1,40}$'),
    timeout         double precision not null default 30 check (timeout > 0 and timeout <= 300),
    dev             boolean     not null default false,
    enabled         boolean     not null default true,
    disabled_reason text,
    description     text,
    -- [{"secret": TEXT, "since": TIME, "until": TIME or null}], the newest first
    secrets         jsonb       not null check (jsonb_array_length(secrets) > 0),
    created_at      timestamptz not null,
    updated_at      timestamptz not null
);
create index webhook_endpoints_by_tenant on webhook_endpoints (tenant);

-- The body of an event, stored once for all its deliveries. It is kept while any of them exists; prune checks it from
-- expires_at on.
create table webhook_bodies (
    id         uuid        primary key,
    tenant     tenant_name,
    body       text        not null,
    deliveries uuid[]      not null,
    expires_at timestamptz not null
);
create index webhook_bodies_expiring on webhook_bodies (expires_at);

-- Deliveries of an endpoint, newest first. Partial, so that other jobs cost nothing. The pattern cannot fail: a job must be able to
-- end even with an invalid payload (a text too long for an index, a \u0000).
create index history_deliveries on history (substring(payload::text from '"endpoint" ?: ?"([0-9a-f-]{36})"'), finished_at)
    where task = 'holdfast.webhook';
create index dead_deliveries on dead (substring(payload::text from '"endpoint" ?: ?"([0-9a-f-]{36})"'), finished_at)
    where task = 'holdfast.webhook';

insert into settings (name, value) values ('outbox_keys_days', '30'), ('webhook_endpoints_per_tenant', '50');

-- Ids do not compress; the attempt would cost more than the space.
alter table claims alter column ids set storage external;
