"""Outcomes: what users later reported about decisions, stored beside them, counted by policy, and watched.

In:   reports that an answer was right or wrong (``schema``), for stored decisions (``decisions``).
Out:  Parquet files in ``outcomes/`` of the records folder (``log``), histories and receipts (``desk``), accuracy and
      coverage by policy (``figures``), and whether a promise is still claimed (``monitor``); over HTTP by ``routes``.
"""
