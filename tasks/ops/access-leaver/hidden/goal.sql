update documents set owner = 'p04' where owner = 'p01';
delete from grants where person = 'p01';
update accounts set state = 'closed' where person = 'p01';
