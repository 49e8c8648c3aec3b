"""The policies of a running service: which are there, how they compare, and how one takes the place of another."""
