-- When a batch was last counted: an open batch without activity for long is abandoned (end_abandoned).
alter table batch_counts add counted_at timestamptz;
