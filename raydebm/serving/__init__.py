"""The triage service: a Ray Serve application in front of generators, the ensemble and the constraint checks.

A request passes ``access.guard`` (id, key, limits) and a route of ``api``, becomes a ``core.request.RequestContext``,
and is answered by ``core.service``, which knows neither Ray nor HTTP; its ``core.result.TriageResult`` goes out in a
body of ``api.answer_bodies``. ``settings`` reads the run directory, ``spending`` bounds what requests cost. ``ray`` has
the deployments, joins them by handles, and starts the application; ``pages`` are the web pages. Decisions are stored by
``raydebm.decisions``.
"""
