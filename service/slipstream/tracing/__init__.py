"""OpenTelemetry traces: what a span is called and says (`catalogue`), how one is made (`tracer`), and the library
behind it (`otlp`), which is imported where `otel.endpoint` is set and nowhere else.

A worker of the proxy makes no spans. It decides which calls are traced (`context`), and the training side makes the
span of a call once its copy is there.
"""
