create table plans (id text primary key, name text not null, monthly_cents integer not null, seats integer not null, state text not null);
create table subscriptions (id text primary key, customer text not null, plan text not null references plans, seats integer not null, changes_on text);
create table changes (subscription text not null references subscriptions, plan text not null references plans, seats integer not null, on_day text not null);

insert into plans values
  ('basic', 'Basic', 1900, 5, 'sold'),
  ('team', 'Team', 4900, 15, 'sold'),
  ('team-2024', 'Team 2024', 3900, 15, 'closed'),
  ('plus', 'Plus', 9900, 40, 'sold'),
  ('max', 'Max', 24900, 150, 'sold');
insert into subscriptions values
  ('s-301', 'Arbor Studio', 'basic', 4, null),
  ('s-302', 'Arbor Studios Ltd', 'team-2024', 12, null),
  ('s-303', 'Nordlicht', 'plus', 22, null),
  ('s-304', 'Kite Works', 'team', 9, null),
  ('s-305', 'Pine & Co', 'max', 98, null),
  ('s-306', 'Vela', 'team-2024', 14, '2026-07-01'),
  ('s-307', 'Fjord Digital', 'basic', 2, null),
  ('s-308', 'Mosaik', 'plus', 31, null);
