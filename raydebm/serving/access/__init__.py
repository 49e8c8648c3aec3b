"""Who may ask, how much and how often: keys, limits, hosts, uploads, repeated requests, and the guard of all routes."""
