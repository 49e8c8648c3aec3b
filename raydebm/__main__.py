"""``python -m raydebm``: the ``raydebm`` command."""

from raydebm.cli import main

main()
