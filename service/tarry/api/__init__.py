"""`tarry api`: HTTP for senders that do not speak Kafka, and the console for whoever is on call.

One stateless process, apart from `tarry serve`; any number of replicas. It needs the extra `tarry[http]`.
"""
