"""Stored decisions: what was decided about every request, written, read, and decided again under other settings.

In:   the record of every request that was decided (``record``), and what users report about it (``outcomes``).
Out:  Parquet files of a folder (``writer``, ``parquet_folder``); lists and single decisions (``reader``); the same
      decisions under other settings (``stored_replay``).
Does not know: Ray, HTTP. The service and the commands both use it.
"""
