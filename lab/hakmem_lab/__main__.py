"""python -m hakmem_lab"""

import sys

try:
    from hakmem_lab.cli import main  # takes long enough to be interrupted

    main()
except KeyboardInterrupt:
    print("hakmem: interrupted", file=sys.stderr)
    sys.exit(130)
