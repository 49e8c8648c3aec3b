"""The triage service: a Ray Serve application in front of generators, the ensemble and the constraint checks.

A request passes ``access.guard`` (id, key, limits) and a route of ``routes``, becomes a
``core.request.RequestContext``, and is answered by ``core.service``, which is independent of Ray and HTTP;
``routes.answers`` turns its ``core.result.TriageResult`` into a response. ``settings`` reads the run directory,
``spending`` limits the cost of requests, ``store`` keeps decisions and reported outcomes, and ``feedback`` makes runs
and guarantees of them. ``ray`` has the deployments, connects them by handles, and starts the application; ``page`` has
the web pages.
"""
