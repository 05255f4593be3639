-- Effects that happen once: messages of the outbox and webhooks' deliveries are jobs, so little is needed beside them.

-- Limits that a waiting job keeps: those of an order ("order:..."), so that no later job of that order goes before it.
alter table later add held text[];

-- Which waiting job keeps an order.
create table kept_orders (
    key text collate "C" primary key,
    id  uuid not null
);

-- Where a tenant wants to be told of events. Secrets are sealed when a key is configured; no role but the owner reads them.
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

-- What an event's deliveries send: once, however many there are. It stays while any of them can be seen; prune looks from
-- expires_at on.
create table webhook_bodies (
    id         uuid        primary key,
    tenant     tenant_name,
    body       text        not null,
    deliveries uuid[]      not null,
    expires_at timestamptz not null
);
create index webhook_bodies_expiring on webhook_bodies (expires_at);

-- Deliveries of an endpoint, the newest first. Partial: other jobs pay nothing. By a pattern, which cannot fail: whatever somebody
-- put into a payload by hand (a text too long for an index, a \u0000), its job must be able to end.
create index history_deliveries on history (substring(payload::text from '"endpoint" ?: ?"([0-9a-f-]{36})"'), finished_at)
    where task = 'holdfast.webhook';
create index dead_deliveries on dead (substring(payload::text from '"endpoint" ?: ?"([0-9a-f-]{36})"'), finished_at)
    where task = 'holdfast.webhook';

insert into settings (name, value) values ('outbox_keys_days', '30'), ('webhook_endpoints_per_tenant', '50');

-- Ids do not compress: trying costs more than the space.
alter table claims alter column ids set storage external;
