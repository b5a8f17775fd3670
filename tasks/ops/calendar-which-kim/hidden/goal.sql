update events set starts = '2026-06-12T08:30:00Z' where id = 'e06';
