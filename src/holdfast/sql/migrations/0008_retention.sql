-- When a batch was last counted: one that is open and of which nothing was heard for long has lost whoever opened it.
alter table batch_counts add counted_at timestamptz;
