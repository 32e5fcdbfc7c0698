"""The client's side of sessions: `hal.client.session` puts it together."""
