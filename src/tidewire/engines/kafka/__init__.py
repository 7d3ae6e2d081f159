"""The Kafka engine: the event log of a cluster, both ends, and the topics it lies in.

Nothing is imported here: the settings of this engine are read by installations without its vendor.
"""
