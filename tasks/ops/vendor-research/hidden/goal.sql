insert into requests (vendor, plan, seats, yearly_cents) values ('quorum', 'Standard', 48, 721200);
