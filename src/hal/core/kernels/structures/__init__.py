"""What every kernel is made of: declared tables, their columns, how kernels are compiled, trees, slots, bounds."""
