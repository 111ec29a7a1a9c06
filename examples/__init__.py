"""Small programs that show uses of tarry. Run `python -m examples.NAME --help` in the directory above this one."""
