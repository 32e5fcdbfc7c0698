"""Who may do what: identities, roles and their rights, tokens, limits, and the audit log. See docs/access.md."""
