"""What several tests share: pytest plugins, and the checker of what was delivered."""
