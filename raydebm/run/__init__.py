"""The run directory: its layout, tables and columns, and the stages with their dependencies.

In:   records, a recipe.
Out:  files below one folder: a local path or any filesystem URL that pyarrow opens.
Independent of: how a stage is made, Ray, torch.
"""
