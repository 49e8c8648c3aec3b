"""One pass of the loop: sample, check and score candidates, in waves and within a time limit."""
