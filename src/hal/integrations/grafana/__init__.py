"""Dashboards for Grafana, built with its own SDK (extra `grafana`): `python -m hal.integrations.grafana DIR`."""
