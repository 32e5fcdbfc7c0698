"""What changes when something starts or ends on a node: what fits where, and when nodes come free."""
