"""Which names may be targets of an intake, remembered by the bytes in which they come."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from sys import intern

from tarry.core.request.header_values import Fault, shown
from tarry.core.request.intake_policy import IntakePolicy
from tarry.headers import ErrorCode, is_legal_topic, owner_of_internal_topic

#: Answers kept, each for a name of at most 249 bytes.
_MAX_CACHED = 4_096
_MAX_CACHED_BYTES = 249


class TargetNames:
    """Reads the header that names a target.

    One thread only: answers are cached.

    Args:
        policy: of the intake.
        header: the header's name; not looked at where the policy fixes the target.
    """

    __slots__ = ("_answers", "_header", "_policy", "fixed")

    def __init__(self, policy: IntakePolicy, header: str) -> None:
        self._policy = policy
        self._header = header
        self._answers: dict[bytes, str | Fault] = {}
        self.fixed = None if policy.fixed_target is None else intern(policy.fixed_target)
        """Where every record goes, whatever its headers say."""

    def read(self, found: Mapping[str, bytes | None]) -> str | Fault:
        """Where a record goes: the same `str` object for the same bytes.

        Args:
            found: its headers.
        """
        if self.fixed is not None:
            return self.fixed
        name = self._header
        if name not in found:
            return Fault(ErrorCode.NO_TARGET, f"needs {name}")
        value = found[name]
        if value is None:
            return Fault(ErrorCode.BAD_TARGET, f"{name} is null")
        answer = self._answers.get(value)
        if answer is None:
            answer = self._check(value)
            if len(value) <= _MAX_CACHED_BYTES:
                if len(self._answers) >= _MAX_CACHED:
                    self._answers.clear()
                self._answers[value] = answer
        return answer

    def _check(self, value: bytes) -> str | Fault:
        """Say whether a name may be a target."""
        name = value.decode("utf-8", "replace")
        if not is_legal_topic(name):
            return Fault(ErrorCode.BAD_TARGET, f"not a legal topic name: {shown(value)}")
        if name.startswith("__"):
            return Fault(ErrorCode.INTERNAL_TARGET, f"Kafka's own topics are no targets: {name}")
        owner = owner_of_internal_topic(name)
        if owner is not None and (owner == self._policy.topic or owner in self._policy.intakes):
            return Fault(ErrorCode.INTERNAL_TARGET, f"a topic of intake {owner} is no target: {name}")
        if not any(fnmatchcase(name, glob) for glob in self._policy.targets):
            return Fault(ErrorCode.TARGET_NOT_ALLOWED, f"not among the targets of {self._policy.topic}: {name}")
        return intern(name)
