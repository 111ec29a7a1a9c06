"""Spark jobs for what is bigger than one process: filling the service, applying what it delivers, and proving it.

Each is a pure function from DataFrame to DataFrame and a thin job around it. Only this package and the commands of
`tarry spark` need PySpark: `pip install 'tarry[pipelines]'`.
"""
