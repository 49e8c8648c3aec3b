"""The service itself, in records: what is to be run for a request, the triage loop on a backend, and what came of it.

Does not know: Ray, HTTP.
"""
