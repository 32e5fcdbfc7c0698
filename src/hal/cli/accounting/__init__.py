"""Commands that ask the collector what work had, used and cost."""
