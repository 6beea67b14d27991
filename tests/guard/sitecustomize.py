"""Puts the network guard into every Python that a test starts (found through PYTHONPATH). Must run on Python 3.8."""

import network_guard

network_guard.install()
