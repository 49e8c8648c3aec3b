"""Guarantees on the error rate of returned answers, and their monitoring in use."""
