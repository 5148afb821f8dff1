import pytest
from pydantic import TypeAdapter, ValidationError

from slipstream.config.units import ByteSize, Duration, PositiveDuration

DURATION = TypeAdapter(Duration)
POSITIVE_DURATION = TypeAdapter(PositiveDuration)
BYTE_SIZE = TypeAdapter(ByteSize)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (300, 300.0),
        (0.5, 0.5),
        ("300", 300.0),
        ("100ms", 0.1),
        ("300s", 300.0),
        ("5m", 300.0),
        ("1.5h", 5400.0),
        ("24h", 86400.0),
        ("7d", 604800.0),
        (" 5 M ", 300.0),
        ("0s", 0.0),
        (0, 0.0),
    ],
)
def test_a_duration_is_seconds(written, seconds):
    value = DURATION.validate_python(written)
    assert value == pytest.approx(seconds)
    assert DURATION.validate_json(DURATION.dump_json(value)) == value


@pytest.mark.parametrize(
    "written",
    [-1, "-1s", "5 parsecs", "s", "", "1h30m", True, None, [], float("nan"), float("inf"), 10**400, "9" * 400],
)
def test_what_is_no_duration_is_refused_with_examples(written):
    with pytest.raises(ValidationError, match='a duration from 0 such as 300, "100ms", "300s"'):
        DURATION.validate_python(written)


@pytest.mark.parametrize("written", [0, "0s", "0ms"])
def test_a_timeout_of_nothing_is_refused(written):
    with pytest.raises(ValidationError, match="greater than 0"):
        POSITIVE_DURATION.validate_python(written)


@pytest.mark.parametrize(
    ("written", "size"),
    [(65536, 65536), ("64KiB", 65536), ("8MiB", 8388608), ("1MB", 1000000), ("1.5kb", 1500), ("2 GiB", 2**31)],
)
def test_a_size_is_bytes(written, size):
    value = BYTE_SIZE.validate_python(written)
    assert value == size
    assert isinstance(value, int)
    assert BYTE_SIZE.validate_json(BYTE_SIZE.dump_json(value)) == value


@pytest.mark.parametrize("written", [-1, "8 M", "MiB", "", None, True, {}, float("inf")])
def test_what_is_no_size_is_refused_with_examples(written):
    with pytest.raises(ValidationError, match='a size in bytes such as 65536, "64KiB"'):
        BYTE_SIZE.validate_python(written)


@pytest.mark.parametrize("written", [0, "0MiB", "0.4B"])
def test_a_size_of_nothing_is_refused(written):
    with pytest.raises(ValidationError, match="greater than 0"):
        BYTE_SIZE.validate_python(written)
