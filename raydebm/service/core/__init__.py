"""The service itself, without its network: requests, the triage loop on a backend, and results.

Does not know: Ray, HTTP.
"""
