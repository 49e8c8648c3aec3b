"""One module per stage of ``run.stages``, with the function that makes it."""
