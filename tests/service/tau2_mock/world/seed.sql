create table users (user_id text primary key, name text not null);
create table tasks (
  task_id text primary key,
  title text not null check (title <> ''),
  description text,
  status text not null check (status in ('pending', 'completed'))
);
create table user_tasks (user_id text not null references users, task_id text not null references tasks, primary key (user_id, task_id));
create table notifications (
  notification_id text primary key,
  message text not null,
  task_id text references tasks,
  status text not null default 'unread'
);

insert into users values ('user_1', 'Test User');
insert into tasks values ('task_1', 'Test task', 'A test task', 'pending');
insert into user_tasks values ('user_1', 'task_1');
