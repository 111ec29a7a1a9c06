"""The console: pages for whoever is on call."""
