"""What is made of several runs, or of one finished run: seeds, folds, variants, transfer, repair, reproduction."""
