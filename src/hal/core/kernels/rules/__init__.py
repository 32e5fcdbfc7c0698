"""What policy, bookings and licences allow: counters that starts and ends keep up to date."""
