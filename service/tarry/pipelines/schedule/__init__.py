"""`schedule`: send the rows of a table as delayed messages; repeated runs send no row twice."""
