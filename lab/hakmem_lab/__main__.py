"""python -m hakmem_lab"""

import os
import sys

try:
    from hakmem_lab.cli import main  # takes long enough to be interrupted

    main()
except KeyboardInterrupt:
    print("hakmem: interrupted", file=sys.stderr, flush=True)
    os._exit(130)  # after an interrupt inside an exec, as imports have them, sys.exit ends by the signal
