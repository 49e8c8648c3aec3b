"""The triage service: a Ray Serve application in front of generators, the ensemble and the constraint checks.

A request passes ``access.Guard`` (id, key, limits) and a route of ``routes``, becomes a ``core.RequestContext``, and is
answered by ``core.TriageService``, which is independent of Ray and HTTP; ``routes.bodies`` turns its ``TriageResult``
into a response. ``settings`` reads the run directory, ``spending`` limits the cost of requests, ``store`` keeps
decisions and reported outcomes, and ``feedback`` makes runs and guarantees of them. ``ray`` has the deployments,
connects them by handles, and starts the application; ``page`` has the web pages.
"""
