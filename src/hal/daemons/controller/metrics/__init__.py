"""The controller's metrics: what there are (`declared`), the series that are counted, and views of its state."""
