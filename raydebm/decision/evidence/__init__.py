"""Distinct answers of a pool and their probabilities: terms of evidence, posterior, fit, profiles."""
