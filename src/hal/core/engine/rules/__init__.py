"""What a configuration, a policy, bookings and licences mean for several groups of tables at once; part of `apply`."""
