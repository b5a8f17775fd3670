update orders set customer = 'c01' where customer = 'c02';
update orders set customer = 'c05' where customer in ('c06', 'c07');
update customers set merged_into = 'c01' where id = 'c02';
update customers set merged_into = 'c05' where id in ('c06', 'c07');
insert into merges values ('c02', 'c01'), ('c06', 'c05'), ('c07', 'c05');
