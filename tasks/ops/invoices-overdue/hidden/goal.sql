update invoices set reminders = reminders + 1 where id in ('i01', 'i02', 'i04', 'i07', 'i09');
insert into fees values ('i09', 500);
