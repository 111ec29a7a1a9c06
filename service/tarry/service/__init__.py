"""The service behind `tarry serve`: a supervisor, its worker processes, their HTTP and their metrics."""
