"""The agent: exports a member's Services and nodes to the hub, and copies addresses and refusals back.

``sources`` has one package for each kind of requests, with a pure plan and a pure status. ``engine`` owns the queues,
the publisher and the status writers of all sources. ``term`` decides whether this copy may lead. ``app`` assembles
them.
"""
