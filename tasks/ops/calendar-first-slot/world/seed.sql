create table people (id text primary key, name text not null, zone text not null, utc_offset real not null);
create table events (
  id text primary key,
  title text not null,
  starts text not null,
  minutes integer not null check (minutes between 15 and 240),
  organizer text not null references people
);
create table attendees (event text not null references events, person text not null references people, primary key (event, person));

insert into people values
  ('ann', 'Ann Keller', 'Europe/Berlin', 2),
  ('raj', 'Raj Iyer', 'Asia/Kolkata', 5.5),
  ('zoe', 'Zoe Martin', 'America/New_York', -4),
  ('kim.l', 'Kim Larsen', 'Europe/Oslo', 2),
  ('kim.p', 'Kim Park', 'Asia/Seoul', 9),
  ('tom', 'Tom Brady', 'Europe/Dublin', 1),
  ('eva', 'Eva Nagy', 'Europe/Budapest', 2);
insert into events values
  ('e01', 'Pricing review', '2026-06-10T08:00:00Z', 60, 'ann'),
  ('e02', 'Stand-up', '2026-06-11T07:00:00Z', 30, 'ann'),
  ('e03', 'Customer call', '2026-06-11T12:00:00Z', 60, 'zoe'),
  ('e04', 'Design review', '2026-06-11T11:30:00Z', 60, 'raj'),
  ('e05', 'One to one', '2026-06-11T12:00:00Z', 30, 'kim.l'),
  ('e06', 'Planning', '2026-06-12T10:00:00Z', 120, 'raj'),
  ('e07', 'Budget', '2026-06-12T13:00:00Z', 60, 'ann'),
  ('e08', 'Interview', '2026-06-11T13:00:00Z', 60, 'eva'),
  ('e09', 'Focus time', '2026-06-11T13:30:00Z', 30, 'ann'),
  ('e10', 'Stand-up', '2026-06-12T07:00:00Z', 30, 'ann'),
  ('e11', 'Retro', '2026-06-11T14:00:00Z', 60, 'kim.p'),
  ('e12', 'Pricing review (draft)', '2026-06-09T08:00:00Z', 60, 'ann');
insert into attendees values
  ('e01', 'ann'),
  ('e01', 'raj'),
  ('e01', 'zoe'),
  ('e02', 'ann'),
  ('e02', 'kim.l'),
  ('e02', 'tom'),
  ('e03', 'zoe'),
  ('e03', 'eva'),
  ('e04', 'raj'),
  ('e05', 'kim.l'),
  ('e05', 'tom'),
  ('e06', 'raj'),
  ('e06', 'zoe'),
  ('e07', 'ann'),
  ('e07', 'eva'),
  ('e08', 'eva'),
  ('e09', 'ann'),
  ('e10', 'ann'),
  ('e10', 'kim.l'),
  ('e11', 'kim.p'),
  ('e11', 'tom'),
  ('e12', 'ann'),
  ('e12', 'tom');
