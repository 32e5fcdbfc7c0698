"""What a controller does before it can lead: plugins, kernels, the policy of hal.toml; backup and restore."""
