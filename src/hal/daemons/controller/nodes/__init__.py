"""The connections of agents: who is admitted as a node, what nodes report, what they are sent."""
