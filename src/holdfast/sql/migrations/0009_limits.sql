-- What kind of thing a limit is for is worked out when its row is made. As a generated column it was dear: of those
-- PostgreSQL 16 and later read the expression anew for every row of every update, and each claim and each end updates.
alter table limits alter column kind drop expression, alter column kind set default 'key', alter column kind set not null;
