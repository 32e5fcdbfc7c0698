"""Numbers of a process for Prometheus: declared once, kept where things happen, shown as text or protobuf.

Import names from the modules. Everything is updated and read on the process's event loop: there are no locks.
"""
