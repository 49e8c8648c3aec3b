"""The service on Ray Serve: the application, its deployments, the handles between them, start and shutdown."""
