"""A short part of the campaign of ``make fuzz``, and of the soak."""

import pytest

from .__main__ import campaign, soak


@pytest.mark.parametrize("first", range(0, 160, 40))
def test_adversarial_calls_are_right_or_refused_by_name(first):
    findings = []
    counts = campaign(first, 40, findings.append)
    assert not findings
    assert counts["right"] > 20


def test_many_fits_leave_nothing_behind():
    found = soak(60)
    assert found["memory grew by MiB"] < 50
    assert found["files grew by"] == 0
    assert found["threads differ in"] == found["fork failed"] == 0
