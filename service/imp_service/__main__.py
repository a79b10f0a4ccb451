"""The command `imp`, also `python -m imp_service`."""

import sys

from imp_service.cli.shell import main

if __name__ == "__main__":
    sys.exit(main())
