"""Load balancers for the clusters of Cluster API: members, hooks and endpoints; the hub does the balancing."""
