"""Models and tokenizers that others trained: a bad one is one clear error."""
