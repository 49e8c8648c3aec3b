"""The ``raydebm`` command: one module per verb or group of verbs, imported when it is called.

``commands`` lists the verbs, ``parameters`` has the options that verbs with a recipe share, ``console`` has what
several of them print. Every verb parses its options, calls the function that does the work, and shows the result.
"""

import logging
import os
import sys
from collections.abc import Sequence

from raydebm.errors import RaydebmError


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. A user's mistake is one clear line and exit code 2, not a traceback."""
    from raydebm.cli.commands import app

    logging.basicConfig(
        level=os.environ.get("RAYDEBM_LOG_LEVEL", "WARNING").upper(), format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        app(args=None if arguments is None else list(arguments))
    except RaydebmError as error:
        from raydebm.cli.console import show_error

        show_error(error)
        sys.exit(2)
