"""Folders of immutable Parquet files that several processes append to, merge and read."""
