"""The edge to Kafka: the only place that knows the client library."""
