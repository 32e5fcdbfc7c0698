"""Groups of tables. Each owns its arrays, knows how they grow, and knows nothing of the state or of other groups.

`allocation` makes, resizes and copies all of them from their declarations.
"""
