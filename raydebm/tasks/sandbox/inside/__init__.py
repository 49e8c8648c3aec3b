"""Code that runs inside the sandbox, as a package of its own that does not import raydebm."""
