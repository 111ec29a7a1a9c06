"""The check whether a name may be a target of an intake, with a cache by the header's bytes."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from sys import intern

from tarry.core.request.header_values import HeaderFault, shown
from tarry.core.request.intake_policy import IntakePolicy
from tarry.headers import ErrorCode, is_legal_topic, owner_of_internal_topic

#: The size of the cache, in entries. 249 bytes is Kafka's limit on topic names.
_MAX_CACHED = 4_096
_MAX_CACHED_BYTES = 249


class TargetNames:
    """Reads the header that names the target. For one thread only, because results are cached.

    Args:
        policy: the intake's policy.
        header: the header's name; the header is ignored if the policy has a fixed target.
    """

    __slots__ = ("_answers", "_header", "_policy", "fixed")

    def __init__(self, policy: IntakePolicy, header: str) -> None:
        self._policy = policy
        self._header = header
        self._answers: dict[bytes, str | HeaderFault] = {}
        self.fixed = None if policy.fixed_target is None else intern(policy.fixed_target)
        """The fixed target of the intake, or None."""

    def read(self, found: Mapping[str, bytes | None]) -> str | HeaderFault:
        """Return the target of a record; the same `str` object for the same bytes.

        Args:
            found: the record's headers.
        """
        if self.fixed is not None:
            return self.fixed
        name = self._header
        if name not in found:
            return HeaderFault(ErrorCode.NO_TARGET, f"needs {name}")
        value = found[name]
        if value is None:
            return HeaderFault(ErrorCode.BAD_TARGET, f"{name} is null")
        answer = self._answers.get(value)
        if answer is None:
            answer = self._check(value)
            if len(value) <= _MAX_CACHED_BYTES:
                if len(self._answers) >= _MAX_CACHED:
                    self._answers.clear()
                self._answers[value] = answer
        return answer

    def _check(self, value: bytes) -> str | HeaderFault:
        """Return the name if it may be a target, else a fault."""
        name = value.decode("utf-8", "replace")
        if not is_legal_topic(name):
            return HeaderFault(ErrorCode.BAD_TARGET, f"not a legal topic name: {shown(value)}")
        if name.startswith("__"):
            return HeaderFault(ErrorCode.INTERNAL_TARGET, f"Kafka's own topics are no targets: {name}")
        owner = owner_of_internal_topic(name)
        if owner is not None and (owner == self._policy.topic or owner in self._policy.intakes):
            return HeaderFault(ErrorCode.INTERNAL_TARGET, f"a topic of intake {owner} is no target: {name}")
        if not any(fnmatchcase(name, glob) for glob in self._policy.targets):
            return HeaderFault(ErrorCode.TARGET_NOT_ALLOWED, f"not among the targets of {self._policy.topic}: {name}")
        return intern(name)
