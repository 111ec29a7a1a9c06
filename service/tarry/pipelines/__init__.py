"""Spark jobs for data that exceeds one process: schedule messages, apply change logs, audit deliveries.

Each job is a set of pure functions from DataFrame to DataFrame with a thin job around them. Only this package and the
commands of `tarry spark` need PySpark: `pip install 'tarry[spark]'`.
"""
