"""python -m hakmem_lab"""

from hakmem_lab.cli import main

main()
