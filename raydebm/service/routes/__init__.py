"""The service over HTTP: routes, bodies of requests and responses, streams, and the OpenAPI document."""
