"""Access control: keys, hosts, request bodies, the bounded queue, and the guard of all routes."""
