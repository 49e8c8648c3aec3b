"""The triage service: a Ray Serve application in front of generators, the ensemble and the constraint checks.

``schema`` is what clients send and get; ``service`` answers one request (it knows neither Ray nor HTTP); ``chat`` puts
the answer into OpenAI's shape; ``ingress`` is the HTTP surface; ``deployments`` are the Ray parts; ``app`` builds the
application from a run directory and starts it.
"""
