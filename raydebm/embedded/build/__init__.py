"""How the embedded models were made: tokenizer, traces, training and evaluation scripts."""
