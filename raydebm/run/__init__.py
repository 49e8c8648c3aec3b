"""The run directory: what lies where in it, the tables and their columns, the stages and what they depend on.

In:   records, a recipe.
Out:  files below one folder, which is a local path or any filesystem URL that pyarrow opens.
Does not know: how a stage is made, Ray, torch.
"""
