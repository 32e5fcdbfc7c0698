"""What people do to jobs that they submitted, and why a job does not run."""
