"""The store: what must survive a restart. Tables in `tables`, the connection in `database`, one module a concern."""
