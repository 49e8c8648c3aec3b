"""Candidates from endpoints that speak the OpenAI API."""
