update tickets set incident = 'INC-88', state = 'waiting' where id in ('T-4103', 'T-4107', 'T-4108', 'T-4112', 'T-4115', 'T-4119');
