"""What the service decided: stored beside the requests, listed, looked at and decided again.

In:   the record of every request that was decided (``record``); what clients ask about stored ones (``schema``).
Out:  Parquet files of a folder (``writer``, ``files``); lists, pages and single decisions (``reader``, ``index``,
      ``viewing``, ``bodies``); the same decisions under other settings (``redeciding``, ``replaying``,
      ``replayed_file``); all of it over HTTP (``routes``).
"""
