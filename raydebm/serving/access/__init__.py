"""Who may ask, and how much: keys, hosts, bodies, the bounded queue, and the guard of all routes."""
