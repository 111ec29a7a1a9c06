"""Code that several tests share: pytest plugins, and the checker of deliveries."""
