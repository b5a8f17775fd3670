create table customers (id text primary key, name text not null, kind text not null check (kind in ('company', 'foundation')));
create table invoices (
  id text primary key,
  customer text not null references customers,
  issued text not null,
  cents integer not null,
  reminders integer not null default 0,
  paid_on text
);
create table fees (invoice text primary key references invoices, cents integer not null check (cents > 0));

insert into customers values
  ('k1', 'Museum am Fluss', 'foundation'),
  ('k2', 'Oder Logistik GmbH', 'company'),
  ('k3', 'Bakery Sonne', 'company'),
  ('k4', 'River Watch e.V.', 'foundation'),
  ('k5', 'Lindner KG', 'company'),
  ('k6', 'School Club Nord', 'foundation'),
  ('k7', 'Hafen AG', 'company');
insert into invoices values
  ('i01', 'k1', '2026-04-20', 84000, 0, null),
  ('i02', 'k2', '2026-05-02', 129900, 0, null),
  ('i03', 'k3', '2026-05-25', 9900, 0, null),
  ('i04', 'k4', '2026-04-28', 45000, 0, null),
  ('i05', 'k5', '2026-03-15', 230000, 2, '2026-04-20'),
  ('i06', 'k6', '2026-05-09', 12000, 0, null),
  ('i07', 'k7', '2026-05-08', 56000, 0, null),
  ('i08', 'k2', '2026-05-10', 77000, 0, null),
  ('i09', 'k3', '2026-04-01', 9900, 1, null),
  ('i10', 'k7', '2026-05-26', 31000, 0, null),
  ('i11', 'k1', '2026-05-30', 15000, 0, null),
  ('i12', 'k5', '2026-05-09', 42000, 0, null);
