"""The endpoints of REST /v1, by what they are about."""
