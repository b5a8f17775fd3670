update events set starts = '2026-06-12T12:00:00Z' where id = 'e01';
