"""Entry point for `spark-submit`: `spark-submit … submit.py archive --lake DIR` is `tarry spark archive --lake DIR`."""

import sys

from tarry.cli.main import main

if __name__ == "__main__":
    main(["spark", *sys.argv[1:]])
