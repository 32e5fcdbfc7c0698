"""Commands on the policy: queues, accounts, QOS, limits, bookings, licences, shares, and the policy as a whole."""
