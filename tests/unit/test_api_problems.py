"""What an answer says about a field that is wrong."""

from typing import Any

import pytest
from pydantic import ValidationError

from tarry.api.problems import faults_text
from tarry.api.v1.body import NewMessage


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"target": "orders", "delay": 15}, "delay: must be a string, in quotes"),
        ({"target": "orders", "value": {"a": 1}}, "value: must be a string, in quotes; write JSON into it"),
        ({"target": "orders", "dely": "5s"}, "dely: there is no such field"),
        ({"delay": "5s"}, "target: is needed"),
        ({"target": "orders.*"}, "target: not a legal topic name"),
    ],
)
def test_a_fault_says_what_to_write_instead(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError) as raised:
        NewMessage.model_validate(fields)
    assert faults_text((one["loc"], one) for one in raised.value.errors(include_input=False)) == text
