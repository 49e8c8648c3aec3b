"""`python jobs/train_all.py --config recipe.yaml`, or `ray job submit --working-dir . -- python jobs/train_all.py ...`.

The same as `raydebm train`: all flags are there.
"""

import sys
from pathlib import Path

# A submitted job runs from an unpacked copy of the working directory, where the package may not be installed.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from raydebm.cli import main

if __name__ == "__main__":
    main(["train", *sys.argv[1:]])
