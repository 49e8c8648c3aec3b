"""Several trainings of one recipe, by seeds and by folds: results and report."""
