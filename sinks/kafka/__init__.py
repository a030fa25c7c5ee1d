"""The Kafka sink (see `sinks.kafka.sink`); what it raises is in `sinks.kafka.errors`."""

from sinks.kafka.sink import KafkaSink as KafkaSink
