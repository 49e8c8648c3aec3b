"""Several trainings of one recipe, by seeds and by folds: their numbers and report."""
