"""Grants and removes rights on topics, on a test's own broker where at first everybody may do everything."""

from typing import Final

from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

AUTHORIZER: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
"""Properties of the broker."""

_ANYBODY: Final = (ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")


def deny(admin: AdminClient, topic: str, operation: AclOperation) -> None:
    """Remove a right on a topic."""
    bindings = [
        AclBinding(ResourceType.TOPIC, topic, *_ANYBODY, AclOperation.ALL, AclPermissionType.ALLOW),
        AclBinding(ResourceType.TOPIC, topic, *_ANYBODY, operation, AclPermissionType.DENY),
    ]
    for future in admin.create_acls(bindings).values():
        future.result(timeout=30)


def allow(admin: AdminClient, topic: str, operation: AclOperation) -> None:
    """Grant the right again."""
    denial = AclBindingFilter(ResourceType.TOPIC, topic, *_ANYBODY, operation, AclPermissionType.DENY)
    for future in admin.delete_acls([denial]).values():
        future.result(timeout=30)
