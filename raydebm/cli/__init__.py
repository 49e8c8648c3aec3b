"""The ``raydebm`` command: one module per command or group of commands, imported when the command is called.

``commands`` lists them, ``parameters`` has the options that commands share, ``console`` has shared output. A command
parses its options, calls the function that does the work, and shows the result.
"""

import gc
import logging
import sys
from collections.abc import Sequence

from raydebm.errors import RaydebmError
from raydebm.records import GC_THRESHOLD
from raydebm.service.logs import log_level


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line. User errors print one line and exit with code 2, without a traceback."""
    from raydebm.cli.commands import app

    gc.set_threshold(GC_THRESHOLD)
    try:
        logging.basicConfig(level=log_level(default="WARNING"), format="%(levelname)s %(name)s: %(message)s")
        logging.getLogger("huggingface_hub").propagate = False  # the hub's client prints its warnings itself
        app(args=None if arguments is None else list(arguments))
    except RaydebmError as error:
        from raydebm.cli.console import show_error

        show_error(error)
        sys.exit(2)
