insert into refunds (order_id, cents, reason) values ('O-7731', 23440, 'wrong_item');
