"""The edge to Kafka: clients, transactions, the group, offsets, topics, and the translation of errors."""
