"""What may be promised about returned answers, and whether the promise holds in use."""
