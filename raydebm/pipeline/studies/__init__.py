"""Studies of one or several finished runs: seeds, folds, variants, transfer, repair, reproduction."""
