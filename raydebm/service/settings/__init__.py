"""Settings by the operator and from the run directory: arguments, named policies, recipe, versions."""
