"""Tables in files, for jobs to read."""

import csv
from pathlib import Path


def write_csv(path: Path, rows: list[tuple[object, ...]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "key", "due"])
        writer.writerows(rows)
