insert into changes values ('s-302', 'plus', 18, '2026-07-01');
update subscriptions set changes_on = '2026-07-01' where id = 's-302';
