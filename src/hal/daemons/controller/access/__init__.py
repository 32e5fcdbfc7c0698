"""Who may do what: roles and their rights, tokens, limits, and the audit log. See docs/access.md."""
