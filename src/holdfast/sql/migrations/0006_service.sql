-- The service: API tokens and stored responses.

-- API tokens. Only the SHA-256 of a token is stored, and its first characters for display.
create table api_tokens (
    id           uuid        primary key,
    name         text        not null check (length(name) between 1 and 200),
    digest       bytea       not null unique check (length(digest) = 32),
    shown        text        not null check (length(shown) between 1 and 20),
    tenant       tenant_name,  -- null: all tenants
    scopes       text[]      not null check (cardinality(scopes) > 0),
    priority     smallint    not null default 0 check (priority between 0 and 3),  -- the highest its jobs may have
    rate         double precision check (rate > 0),  -- requests per second and service process; null: no limit
    created_at   timestamptz not null,
    expires_at   timestamptz,
    revoked_at   timestamptz,
    last_used_at timestamptz
) with (fillfactor = 70);

-- Responses to requests with an Idempotency-Key, written in the transaction of the request.
create table responses (
    owner       text        not null,  -- a tenant, or the tokens without one
    key         text        not null check (length(key) between 1 and 200),
    fingerprint bytea       not null,  -- of the method, the path and the body
    status      smallint,
    body        text,
    created_at  timestamptz not null,
    primary key (owner, key)
);
create index responses_by_time on responses (created_at);

insert into settings (name, value) values ('responses_hours', '24');

-- Seals the cursors of lists: a cursor may point at another tenant's job, whose id reveals its creation time.
create table cursor_keys (
    key text not null check (length(key) >= 64)
);
insert into cursor_keys (key) values (replace(gen_random_uuid()::text || gen_random_uuid()::text, '-', ''));
