"""What an agent measures of its node and of the steps there, and sends to a collector that has announced itself."""
