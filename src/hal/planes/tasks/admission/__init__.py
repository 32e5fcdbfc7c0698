"""What may be submitted under the policy and the rules of the site, and changes of the policy."""
