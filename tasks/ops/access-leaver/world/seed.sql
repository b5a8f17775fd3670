create table people (
  id text primary key,
  name text not null,
  email text not null unique,
  workspace text not null,
  team text not null
);
create table roles (name text primary key, means text not null, granted_by text not null check (granted_by in ('helpdesk', 'access_board')));
create table grants (
  id integer primary key,
  person text not null references people,
  role text not null references roles,
  unique (person, role)
);

insert into people values
  ('p01', 'Mira Kovac', 'mira.kovac@north.example', 'north', 'finance'),
  ('p02', 'Elias Roth', 'elias.roth@north.example', 'north', 'it'),
  ('p03', 'Sofia Lang', 'sofia.lang@north.example', 'north', 'sales'),
  ('p04', 'Dan Petrescu', 'dan.petrescu@north.example', 'north', 'finance'),
  ('p05', 'Lea Fischer', 'lea.fischer@north.example', 'north', 'support'),
  ('p06', 'Marek Sikora', 'marek.sikora@north.example', 'north', 'it'),
  ('p07', 'Mira Kovac', 'mira.kovac@south.example', 'south', 'sales'),
  ('p08', 'Anja Holm', 'anja.holm@south.example', 'south', 'finance'),
  ('p09', 'Tariq Aziz', 'tariq.aziz@south.example', 'south', 'it'),
  ('p10', 'Beatriz Lima', 'beatriz.lima@north.example', 'north', 'legal'),
  ('p11', 'Jon Askeland', 'jon.askeland@north.example', 'north', 'support'),
  ('p12', 'Wen Zhao', 'wen.zhao@south.example', 'south', 'support');
insert into roles values
  ('reader', 'reads documents', 'helpdesk'),
  ('editor', 'changes documents', 'helpdesk'),
  ('ticket_agent', 'answers tickets', 'helpdesk'),
  ('report_viewer', 'reads reports', 'helpdesk'),
  ('billing_viewer', 'reads invoices', 'helpdesk'),
  ('billing_admin', 'changes invoices and bank details', 'access_board'),
  ('workspace_owner', 'everything in a workspace, invoices included', 'access_board'),
  ('auditor', 'reads everything', 'access_board');
insert into grants values
  (1, 'p01', 'reader'),
  (2, 'p01', 'billing_viewer'),
  (3, 'p02', 'editor'),
  (4, 'p03', 'reader'),
  (5, 'p04', 'billing_viewer'),
  (6, 'p04', 'reader'),
  (7, 'p05', 'ticket_agent'),
  (8, 'p06', 'workspace_owner'),
  (9, 'p07', 'reader'),
  (10, 'p07', 'report_viewer'),
  (11, 'p08', 'billing_admin'),
  (12, 'p09', 'workspace_owner'),
  (13, 'p10', 'auditor'),
  (14, 'p11', 'ticket_agent'),
  (15, 'p12', 'ticket_agent'),
  (16, 'p06', 'editor'),
  (17, 'p03', 'report_viewer');

create table documents (id text primary key, title text not null, owner text not null references people, workspace text not null);
create table accounts (person text primary key references people, state text not null check (state in ('active', 'closed')));

insert into documents values
  ('d01', 'Budget 2026', 'p01', 'north'),
  ('d02', 'Cash plan', 'p01', 'north'),
  ('d03', 'Team lunch', 'p03', 'north'),
  ('d04', 'Supplier list', 'p04', 'north'),
  ('d05', 'Runbook mail', 'p06', 'north'),
  ('d06', 'Pipeline south', 'p07', 'south'),
  ('d07', 'Price list south', 'p07', 'south'),
  ('d08', 'Audit notes', 'p10', 'north'),
  ('d09', 'Dunning letters', 'p01', 'north'),
  ('d10', 'Shift plan', 'p05', 'north'),
  ('d11', 'Contracts', 'p10', 'north'),
  ('d12', 'Bank contacts', 'p04', 'north');
insert into accounts values
  ('p01', 'active'),
  ('p02', 'active'),
  ('p03', 'active'),
  ('p04', 'active'),
  ('p05', 'active'),
  ('p06', 'active'),
  ('p07', 'active'),
  ('p08', 'active'),
  ('p09', 'active'),
  ('p10', 'active'),
  ('p11', 'active'),
  ('p12', 'active');
