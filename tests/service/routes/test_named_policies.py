"""Settings of one request: body > the model id's policy > the calibrated default."""

import pytest

from raydebm.errors import ConfigError, UnknownNameError


@pytest.mark.parametrize(
    ("policies", "error", "words"),
    [
        ({"a b": {}}, ConfigError, "must be letters"),
        ({"x": {"theta_sigma": 2.0}}, ConfigError, "policy 'x'.*theta_sigma"),
        ({"x": {"generators": ["eve"]}}, UnknownNameError, "eve"),
        ({"x": {"policy": "y"}}, ConfigError, "names another policy"),
    ],
)
def test_a_bad_named_policy_ends_the_start(policies, error, words, bundle_of):
    with pytest.raises(error, match=words):
        bundle_of(policies=policies)
