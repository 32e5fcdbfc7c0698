"""What runs in the stream service of a node and in its children, one for each open stream.

Standard library only, like helpers: see `hal.daemons.agent.keeper.stream_service`.
"""
