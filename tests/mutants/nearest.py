"""Which modules are mutated, and which tests are nearest to each module: these tests must kill its mutants.

The fastest tests come first, because a mutant is decided by the first test that fails. A row of the table applies to
all modules whose path begins with the row's path; the longest such row counts. A module without a row is an error, so
that none is left out silently.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCE: Final = ROOT / "service" / "tarry"

COVERED: Final = (
    "core",
    "service/worker",
    "kafka/takeover.py",
    "client/retry/core",
    "client/retry/takeover.py",
    "client/dedup",
    "client/exclusive*.py",
)
"""Files, folders and patterns below `service/tarry`."""

_CORE: Final = (
    "unit/core/test_core_*.py",
    "model/test_journal_model.py",
    "model/test_levels_model.py",
    "model/test_partition_model.py",
)
_REQUEST: Final = ("unit/test_request.py", "unit/test_dialects.py", "unit/core/test_core_*.py")
_RETRY: Final = ("unit/core/test_retry_*.py", "unit/test_cli_redrive.py", "model/test_key_queue_model.py")
_FAKE: Final = (
    "unit/test_worker_*.py",
    "unit/test_transactor_renamed.py",
    "unit/testing/test_fake_worker.py",
    "unit/testing/test_fake_birth.py",
    "unit/testing/test_fake_status.py",
    "unit/testing/test_fake_dialects.py",
)
_SIMULATION: Final = (
    "simulation/test_standby.py",
    "simulation/test_partitions_set_aside.py",
    "simulation/test_another_origin.py",
    "simulation/test_what_our_topics_refuse.py",
    "simulation/test_what_else_may_happen.py",
    "simulation/test_overflow.py",
)

_LEVELS: Final = ("simulation/test_overflow.py", "simulation/test_passed_over.py", "simulation/test_full_memory.py")
_PARKED: Final = (*_FAKE, "simulation/test_parked.py", "simulation/test_partitions_set_aside.py")

NEAREST: Final[dict[str, tuple[str, ...]]] = {
    "core": _CORE,
    "core/delivery.py": ("unit/core/test_core_delivery.py", "unit/core/test_state_of_version_2.py"),
    "core/murmur2.py": ("unit/core/test_core_murmur2.py",),
    "core/message.py": ("unit/core/test_state_of_version_2.py", *_CORE),
    "core/wire.py": ("unit/core/test_state_of_version_2.py", "unit/core/test_core_message.py", "unit/test_request.py"),
    "core/progress": ("unit/core/test_state_of_version_2.py", "unit/test_refusals.py", *_CORE),
    "core/progress/checkpoint.py": ("unit/core/test_core_checkpoint.py", "unit/testing/test_fake_inspector.py", *_CORE),
    "core/progress/journal_state.py": ("unit/testing/test_fake_inspector.py", *_CORE),
    "core/request": (*_REQUEST, "unit/test_client_record.py"),
    "core/request/intake_policy.py": (*_REQUEST, "unit/core/test_retry_fitness.py"),
    "core/request/status.py": ("unit/core/test_core_status.py", "unit/core/test_retry_fitness.py"),
    "core/request/target_names.py": ("unit/test_request.py", "unit/test_worker_targets.py", "unit/test_config.py"),
    "core/request/translated.py": ("unit/core/test_state_of_version_2.py", *_REQUEST),
    "client/retry/core": _RETRY,
    "client/retry/takeover.py": ("unit/testing/test_fake_retry.py", "unit/testing/test_fake_faces.py"),
    "client/dedup": ("unit/test_dedup_window.py", "integration/test_postgres_sink.py"),
    "client/dedup/window.py": ("unit/test_dedup_window.py",),
    "client/exclusive": ("unit/testing/test_fake_exclusive.py", "integration/test_exclusive_writer.py"),
    "kafka/takeover.py": (*_FAKE, *_SIMULATION),
    "service/worker": (*_FAKE, *_SIMULATION),
    "service/worker/budget.py": (
        "unit/test_worker_budget.py",
        "unit/core/test_core_held_up.py",
        "unit/testing/test_fake_worker.py",
        "simulation/test_full_memory.py",
    ),
    "service/worker/deliveries.py": ("unit/test_worker_deliveries.py",),
    "service/worker/draining.py": ("unit/testing/test_fake_draining.py", *_FAKE, *_LEVELS),
    "service/worker/filing.py": (
        "unit/testing/test_fake_filing.py",
        *_FAKE,
        *_LEVELS,
        "simulation/test_what_our_topics_refuse.py",
    ),
    "service/worker/gathering.py": ("unit/testing/test_fake_status.py",),
    "service/worker/level_reader.py": ("unit/testing/test_fake_level_reader.py", *_FAKE, *_LEVELS),
    "service/worker/open_transactions.py": (
        "unit/test_worker_open_transactions.py",
        "unit/testing/test_fake_open_transactions.py",
    ),
    "service/worker/parked_reading.py": ("unit/testing/test_fake_parked_reading.py", *_PARKED),
    "service/worker/parking.py": (
        "unit/testing/test_fake_pausing.py",
        *_PARKED,
        "simulation/test_targets_that_change.py",
        "simulation/test_pauses.py",
        "simulation/test_schedules.py",
    ),
    "service/worker/pausing.py": ("unit/testing/test_fake_pausing.py", "simulation/test_pauses.py"),
    "service/worker/second_reading.py": (
        "unit/testing/test_fake_second_reading.py",
        *_FAKE,
        "simulation/test_passed_over.py",
        "simulation/test_full_memory.py",
    ),
    "service/worker/trimming.py": ("unit/testing/test_fake_trimming.py", *_FAKE, *_LEVELS),
}
"""Tests below `tests`, by how a module's path below `service/tarry` begins."""

FIRST: Final[dict[str, tuple[str, ...]]] = {
    "core/partition_progress.py": ("unit/core/test_core_progress.py",),
    "core/progress/intake.py": (
        "unit/core/test_core_pointer.py",
        "unit/core/test_core_progress.py",
        "unit/core/test_core_partition.py",
    ),
    "core/progress/journal.py": ("unit/core/test_core_varint.py",),
    "core/wheel": ("unit/core/test_core_overflow.py",),
    "core/window": ("unit/core/test_core_partition.py",),
    "kafka/takeover.py": ("unit/testing/test_fake_worker.py",),
    "service/worker": ("unit/testing/test_fake_worker.py",),
}
"""Of these tests, the files that run before all others, together with the file that has the module's name."""


def modules(root: Path = SOURCE) -> list[str]:
    """Return the modules that are mutated, as paths below `service/tarry`."""
    found: set[Path] = set()
    for row in COVERED:
        for path in root.glob(row):
            found.update(path.rglob("*.py") if path.is_dir() else [path])
    return sorted(str(path.relative_to(root)) for path in found if path.name != "__init__.py")


def nearest(module: str, tests: Path = ROOT / "tests") -> list[str]:
    """Return the test files nearest to a module, as paths from the root, in the order in which they run.

    Raises:
        LookupError: the module has no row, or its row names tests that do not exist.
    """
    rows = [row for row in NEAREST if module.startswith(row)]
    if not rows:
        raise LookupError(f"{module}: no row names its nearest tests")
    files: list[str] = []
    for pattern in NEAREST[max(rows, key=len)]:
        here = sorted(str(path.relative_to(tests.parent)) for path in tests.glob(pattern))
        if not here:
            raise LookupError(f"{module}: there is no tests/{pattern}")
        files += [file for file in here if file not in files]
    return files


def stages(module: str, files: Sequence[str]) -> list[list[str]]:
    """Split the same files into stages that run one after the other: first files, other unit tests, all others."""
    name = f"_{Path(module).stem}.py"
    rows = [row for row in FIRST if module.startswith(row)]
    first = {f"tests/{file}" for file in FIRST[max(rows, key=len)]} if rows else set()
    own = [file for file in files if file.endswith(name) or file in first]
    units = [file for file in files if file not in own and "/unit/" in file and "/unit/testing/" not in file]
    others = [file for file in files if file not in own and file not in units]
    return [part for part in (own, units, others) if part]


def chosen(wanted: str, among: Sequence[str]) -> list[str]:
    """Return the modules that `MODULE` names: a file or folder, from the root or below `service/tarry`; empty: all.

    Raises:
        LookupError: it names none of the mutated modules.
    """
    name = (
        wanted.removeprefix("service/").removeprefix("tarry/").strip("/") if "tarry/" in wanted else wanted.strip("/")
    )
    found = [module for module in among if not name or module == name or module.startswith(f"{name}/")]
    if not found:
        raise LookupError(f"{wanted}: none of the modules that are mutated")
    return found
