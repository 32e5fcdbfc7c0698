"""What a request asks for, whether it is well-formed, and whether the caller may ask for it."""
