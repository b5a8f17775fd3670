create table vendors (id text primary key, name text not null, pages text not null);
create table requests (
  id integer primary key,
  vendor text not null references vendors,
  plan text not null,
  seats integer not null check (seats > 0),
  yearly_cents integer not null check (yearly_cents > 0)
);

insert into vendors values
  ('brightdesk', 'Brightdesk', 'https://brightdesk.example/pricing https://brightdesk.example/security'),
  ('helpnest', 'Helpnest', 'https://helpnest.example/pricing https://helpnest.example/security'),
  ('quorum', 'Quorum', 'https://quorum.example/plans https://quorum.example/security https://quorum.example/old-offer'),
  ('ticketly', 'Ticketly', 'https://ticketly.example/pricing https://ticketly.example/security');
insert into requests values
  (1, 'ticketly', 'Everything', 5, 48000);
