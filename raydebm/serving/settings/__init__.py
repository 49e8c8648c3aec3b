"""What the operator sets and what a run directory gives: arguments, named policies, the recipe, the versions."""
