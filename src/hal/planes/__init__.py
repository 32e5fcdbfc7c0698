"""The planes: what HAL does beside deciding. Siblings never import each other."""
