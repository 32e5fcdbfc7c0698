"""Commands on identities: who you are to HAL, API tokens, the audit log."""
