-- tables.sql
create table orders (id integer primary key generated always as identity, item text not null);
create table stock (item text primary key, pieces integer not null);
insert into stock values ('teapot', 1);
