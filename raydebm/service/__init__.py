"""The triage service: a Ray Serve application in front of generators, the ensemble and the constraint checks.

A request passes ``access.guard`` (id, key, limits) and a route of ``api``, becomes a ``core.request.RequestContext``,
and is answered by ``core.service``, which is independent of Ray and HTTP; ``api.answer_bodies`` turns its
``core.result.TriageResult`` into a response. ``settings`` reads the run directory, ``spending`` limits the cost of
requests. ``ray`` has the deployments, connects them by handles, and starts the application; ``pages`` are the web
pages. ``raydebm.service.store`` stores decisions.
"""
