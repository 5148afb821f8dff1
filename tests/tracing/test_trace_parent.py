"""Which calls are traced: by the agent's own `traceparent`, else by the ratio."""

from __future__ import annotations

from slipstream.tracing.context import Traced, TraceParent, TraceSample, trace_parent

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


def test_a_traceparent_is_read_as_the_standard_says() -> None:
    for value, expected in (
        (f"00-{TRACE}-{SPAN}-01", TraceParent(TRACE, SPAN, True)),
        (f" 00-{TRACE}-{SPAN}-00 ", TraceParent(TRACE, SPAN, False)),
        (f"00-{TRACE}-{SPAN}-ff", TraceParent(TRACE, SPAN, True)),
        (f"01-{TRACE}-{SPAN}-01-of a later version", TraceParent(TRACE, SPAN, True)),
        (f"00-{TRACE}-{SPAN}-01-more", None),
        (f"ff-{TRACE}-{SPAN}-01", None),
        (f"00-{TRACE.upper()}-{SPAN}-01", None),
        (f"00-{'0' * 32}-{SPAN}-01", None),
        (f"00-{TRACE}-{'0' * 16}-01", None),
        (f"00-{TRACE}-{SPAN}", None),
        ("", None),
        ("\xff" * 55, None),
    ):
        assert trace_parent(value.encode("latin-1")) == expected, value


def test_the_agent_decides_and_else_the_ratio() -> None:
    parent = f"00-{TRACE}-{SPAN}-"
    for ratio, drawn, header, expected in (
        (0.0, 0.0, parent + "01", Traced(TraceParent(TRACE, SPAN, True))),
        (1.0, 0.0, parent + "00", None),
        (0.5, 0.4, None, Traced()),
        (0.5, 0.5, None, None),
        (0.5, 0.4, "nonsense", Traced()),
        (0.0, 0.0, None, None),
        (1.0, 0.999, None, Traced()),
    ):
        headers = [(b"host", b"x")] if header is None else [(b"TraceParent", header.encode())]
        assert TraceSample(ratio, lambda drawn=drawn: drawn).draw(headers) == expected, (ratio, drawn, header)
