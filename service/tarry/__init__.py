"""tarry: messages that arrive later, on time, once, in order. Kafka's timing wheel grown out of memory."""

__version__ = "0.1.0"
