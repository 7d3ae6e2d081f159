"""The Kafka engine: both ends of the event log of a cluster, and its topics.

Nothing is imported here: installations without the vendor's library read these settings, too.
"""
