"""The API, version 1: `/v1`."""
