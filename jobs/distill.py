"""`python jobs/distill.py --config recipe.yaml`, plain or after `ray job submit --working-dir . --`.

The same as `raydebm distill`: all flags are there.
"""

import sys
from pathlib import Path

# A submitted job runs from an unpacked copy of the working directory, where the package may not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from raydebm.cli import main

if __name__ == "__main__":
    main(["distill", *sys.argv[1:]])
