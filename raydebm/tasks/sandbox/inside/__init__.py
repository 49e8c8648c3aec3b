"""Code that runs inside the sandbox, as a package of its own. Imports nothing of raydebm."""
