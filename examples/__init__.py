"""Small programs that show what tarry is for; `python -m examples.NAME --help` in this directory's parent says more."""
