"""The state and the decisions of one partition. Pure: no client library, no threads, no clock, no logger."""
