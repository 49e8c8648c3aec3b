"""The triage service: a Ray Serve application in front of generators, the ensemble and the constraint checks.

A request passes ``guard`` (id, key, limits) and one of the ``routes``, becomes an ``asking.Ask`` (with ``conversation``
and ``overrides``), is answered by ``service`` (which knows neither Ray nor HTTP) on ``parts``, and goes out in a shape
of ``chat``, ``batch``, ``rerank`` or ``rewards``; ``schema`` and ``replies`` are what clients send and get. ``ingress``
and ``deployments`` are the Ray parts, ``handles`` joins them; ``app`` builds the application from a run directory and
starts it. What was decided is stored and looked at by ``decisions``.
"""
