"""`schedule`: the rows of a table as delayed messages, each once however often it runs."""
