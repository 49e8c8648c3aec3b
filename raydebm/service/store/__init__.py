"""Stored decisions on all requests: writing, reading, and replay under other settings.

In:   the record of every decided request (``record``), and users' outcome reports (``outcomes``).
Out:  Parquet files of a folder (``record``, ``parquet_folder``); lists and single decisions (``reader``); replayed
      decisions (``stored_replay``).
Independent of: Ray, HTTP. Used by the service and the commands.
"""
