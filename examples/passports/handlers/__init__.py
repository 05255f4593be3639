"""One module for each type of job. A handler takes an open transaction and a tenant, and knows nothing of queues."""
