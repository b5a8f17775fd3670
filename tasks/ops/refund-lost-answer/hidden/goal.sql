insert into refunds (order_id, cents, reason) values ('O-7719', 19390, 'damaged');
