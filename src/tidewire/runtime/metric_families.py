"""One metric in one line, for whoever shows numbers to Prometheus."""

from collections.abc import Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


def gauge(name: str, help_text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, help_text, value=value)


def counter(name: str, help_text: str, value: float) -> Metric:
    return CounterMetricFamily(name, help_text, value=value)


def gauge_by(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([str(key)], value)
    return family


def counter_by(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=[label])
    for key, value in values.items():
        family.add_metric([str(key)], value)
    return family
