create table incidents (id text primary key, title text not null, began text not null, ended text, state text not null);
create table tickets (
  id text primary key,
  subject text not null,
  area text not null,
  opened text not null,
  state text not null check (state in ('open', 'waiting', 'closed')),
  incident text references incidents
);

insert into incidents values
  ('INC-86', 'Mail delivery slow', '2026-06-01T13:00:00Z', '2026-06-01T15:10:00Z', 'closed'),
  ('INC-87', 'Double bookings of card payments', '2026-06-02T20:00:00Z', null, 'open'),
  ('INC-88', 'Card payments fail (502 from the gateway)', '2026-06-03T09:10:00Z', '2026-06-03T09:35:00Z', 'mitigated');
insert into tickets values
  ('T-4100', 'Where is my parcel?', 'orders', '2026-06-03T08:01:00Z', 'waiting', null),
  ('T-4101', 'Invoice has the wrong address', 'accounts', '2026-06-03T08:44:00Z', 'open', null),
  ('T-4102', 'Card statement shows a charge from April', 'payments', '2026-06-03T10:50:00Z', 'open', null),
  ('T-4103', 'Cannot pay by card', 'payments', '2026-06-03T09:13:00Z', 'open', null),
  ('T-4104', 'Change of e-mail address', 'orders', '2026-06-03T09:03:00Z', 'open', null),
  ('T-4105', 'Gift card code does not work', 'payments', '2026-06-03T09:22:00Z', 'open', null),
  ('T-4106', 'Password reset mail never came', 'shipping', '2026-06-03T10:45:00Z', 'open', null),
  ('T-4107', 'Card payment fails with error 502', 'payments', '2026-06-03T09:17:00Z', 'open', null),
  ('T-4108', 'Checkout: payment declined for all cards', 'payments', '2026-06-03T09:18:00Z', 'open', null),
  ('T-4109', 'Refund not on my card yet', 'payments', '2026-06-03T07:37:00Z', 'open', null),
  ('T-4110', 'How do I pay by invoice?', 'payments', '2026-06-03T09:15:00Z', 'open', null),
  ('T-4111', 'Newsletter cannot be left', 'orders', '2026-06-03T07:44:00Z', 'open', null),
  ('T-4112', 'Payment page spins for ever', 'payments', '2026-06-03T09:22:00Z', 'open', null),
  ('T-4113', 'Wrong size', 'shipping', '2026-06-03T09:16:00Z', 'open', null),
  ('T-4114', 'Error 502 in the forum', 'accounts', '2026-06-03T09:57:00Z', 'waiting', null),
  ('T-4115', 'Error 502 after entering my card', 'payments', '2026-06-03T09:25:00Z', 'open', null),
  ('T-4116', 'How do I pay by invoice?', 'payments', '2026-06-03T08:17:00Z', 'open', null),
  ('T-4117', 'Card payment fails, no mail from you', 'payments', '2026-06-03T08:41:00Z', 'open', null),
  ('T-4118', 'Invoice has the wrong address', 'accounts', '2026-06-03T07:26:00Z', 'open', null),
  ('T-4119', 'Card is refused, bank says no request came', 'payments', '2026-06-03T09:29:00Z', 'open', null),
  ('T-4120', 'Charged twice by card in April?', 'payments', '2026-06-03T09:28:00Z', 'open', null),
  ('T-4121', 'Paid by card twice this morning', 'payments', '2026-06-03T09:31:00Z', 'open', 'INC-87'),
  ('T-4122', 'Gift card code does not work', 'payments', '2026-06-03T10:25:00Z', 'waiting', null),
  ('T-4123', 'Password reset mail never came', 'orders', '2026-06-03T09:36:00Z', 'waiting', null);
