"""Tools that change the world: replays get what production's call returned, and do not run them again."""
