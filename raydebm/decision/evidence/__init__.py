"""What is known about each distinct answer of a pool, and its probability: terms, posterior, fit, profiles."""
