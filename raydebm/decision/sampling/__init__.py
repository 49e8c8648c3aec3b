"""One pass of the loop: candidates are sampled, checked and scored, in waves and within a time limit."""
